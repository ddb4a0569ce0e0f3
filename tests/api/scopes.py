"""Who may call what: what the routes declare, and what a key of other topics meets."""

from __future__ import annotations

from dataclasses import dataclass

from tests.api.dialect import Body
from tests.routes import scopes

FOREIGN = "foreign.topic"
NO_WATCH = f"wid_{'A' * 22}"
OF_BROWSERS = {("GET", "/v0/topics/{topic}/work"), ("GET", "/v0/watch/{wid}")}


@dataclass(frozen=True, slots=True)
class Row:
    """`foreign`: what a key of other prefixes meets. 403 where the topic is in the path, or named by `body`, or where
    this is about the whole server; 404 where what the path names is out of its reach; 200 where the answer holds only
    what is within it, which the test named by `shown_by` sees to."""

    foreign: int = 403
    body: Body | None = None
    query: str = ""
    shown_by: str = ""


T = "/v0/topics/{topic}"
OF_OTHERS = "messages/test_access: test_a_key_of_other_topics_neither_sees_nor_settles"
C = "/api/topic-configs"
S = "/api/topic-schemas"
USERS = "/api/users"
ANY_TOPIC = "test_user_events: test_who_may_write_may_send_whatever_the_keys_topics"
VIEWS = "test_saved_views: test_nobody_sees_or_touches_anothers"
SCHEDULES = "test_schedules: test_a_key_sees_and_changes_schedules_of_its_own_topics"
# In the order in which they are tried; others come behind.
ROWS = {
    ("PUT", T): Row(body={"type": "queue"}),
    ("POST", T): Row(body={"records": [{"data": 1}]}),
    ("POST", f"{T}/diff"): Row(body={}),
    ("POST", f"{T}/delete"): Row(body={"before_seq": 1}),
    ("GET", f"{T}/asof"): Row(query="?at=2999-01-01T00:00:00Z"),
    ("GET", f"{T}/asof/jobs"): Row(query="?at=2999-01-01T00:00:00Z"),
    ("PATCH", f"{T}/jobs/{{seq}}"): Row(body={"tag": "t"}),
    ("POST", f"{T}/cancel"): Row(body={"seqs": []}),
    ("POST", f"{T}/release"): Row(body={"seqs": []}),
    ("POST", f"{T}/operations"): Row(body={"kind": "cancel", "filter": {"tag": "t"}}),
    ("GET", f"{T}/stats"): Row(query="?by=tenant"),
    ("POST", f"{T}/claim"): Row(body={"node": "n"}),
    ("POST", "/v0/claim"): Row(body={"node": "n", "topics": [FOREIGN]}),
    ("POST", f"{T}/ack"): Row(body={"node": "n", "seqs": []}),
    ("POST", f"{T}/nack"): Row(body={"node": "n", "seqs": []}),
    ("POST", f"{T}/fail"): Row(body={"node": "n", "seqs": []}),
    ("POST", f"{T}/extend"): Row(body={"node": "n", "seqs": [], "lease_ms": 1_000}),
    ("GET", f"{T}/work"): Row(query="?node=n"),
    ("POST", f"{T}/requeue"): Row(body={"filter": {}, "dry_run": True}),
    ("GET", "/v0/operations/{id}"): Row(404),
    ("POST", "/v0/operations/{id}/cancel"): Row(404),
    ("POST", "/v0/watch"): Row(body={"topics": {FOREIGN: {}}}),
    ("GET", "/v0/watch/{wid}"): Row(404),
    ("GET", "/v0/topics"): Row(200, shown_by="test_access: test_a_list_shows_a_key_its_own_topics"),
    ("GET", "/v0/overview"): Row(200, shown_by="test_overview: test_a_key_sees_its_own_topics"),
    ("POST", "/v0/keys"): Row(body={"name": "k", "scopes": ["read"], "prefixes": [FOREIGN]}),
    ("GET", "/v0/keys"): Row(200, shown_by="test_keys: test_a_key_neither_sees_nor_touches_one_that_may_do_more"),
    ("GET", "/v0/keys/{id}"): Row(404),
    ("POST", "/v0/keys/{id}/rotate"): Row(404, body={}),
    ("DELETE", "/v0/keys/{id}"): Row(404),
    ("GET", "/v0/views"): Row(200, shown_by=VIEWS),
    ("DELETE", "/v0/views/{name}"): Row(404),
    ("PUT", "/v0/views/{name}"): Row(200, body={"address": "/admin/"}, shown_by=VIEWS),
    ("GET", "/v0/admin/audit"): Row(
        200, shown_by="test_audit: test_a_key_with_prefixes_sees_the_entries_of_its_topics"
    ),
    ("GET", "/v0/schedules"): Row(200, shown_by=SCHEDULES),
    ("PUT", "/v0/schedules/{name}"): Row(body={"topic": FOREIGN, "cron": "0 0 1 1 *", "record": {"data": 1}}),
    ("GET", "/v0/schedules/{name}"): Row(404),
    **{("POST", f"/v0/schedules/{{name}}/{verb}"): Row(404) for verb in ("run", "pause", "resume")},
    ("DELETE", "/v0/schedules/{name}"): Row(404),
    ("POST", "/api/messages"): Row(body={"topic": FOREIGN, "payload": "x"}),
    ("POST", "/api/messages/batch"): Row(body={"topic": FOREIGN, "messages": [{"payload": "x"}]}),
    ("POST", "/api/messages/dequeue"): Row(body={"topic": FOREIGN}),
    ("POST", "/api/messages/ack"): Row(200, body={"ids": []}, shown_by=OF_OTHERS),
    ("POST", "/api/messages/{id}/ack"): Row(404),
    ("POST", "/api/messages/{id}/nack"): Row(404),
    ("POST", "/api/messages/{id}/extend"): Row(404),
    ("POST", "/api/messages/{id}/requeue"): Row(404),
    ("POST", "/api/topics/{topic}/requeue"): Row(body={"filter": {}, "dry_run": True}),
    ("GET", "/api/messages/{id}"): Row(404),
    ("GET", "/api/stats"): Row(200, shown_by=OF_OTHERS),
    ("POST", "/api/topics/{topic}/replay"): Row(body={}),
    ("DELETE", "/api/topics/{topic}/message-log"): Row(query="?before=2000-01-01T00:00:00Z"),
    ("PUT", "/api/admin/delete-reaper/schedule"): Row(body={"schedule": ""}),
    ("GET", C): Row(200, shown_by="test_topic_configs: test_a_key_sees_and_changes_its_own_topics"),
    ("PUT", f"{C}/{{topic}}"): Row(body={}),
    ("GET", S): Row(200, shown_by="test_topic_schemas: test_a_key_sees_and_changes_its_own_topics"),
    ("PUT", f"{S}/{{topic}}"): Row(body={"schema_json": "{}"}),
    ("POST", USERS): Row(body={"username": "made-here", "password": "twelve chars and more"}),
    ("PUT", f"{USERS}/{{id}}"): Row(body={}),
    ("POST", f"{USERS}/{{id}}/grants"): Row(body={"action": "read"}),
    ("POST", "/v0/users/{id}/token"): Row(body={}),
    ("POST", "/v0/users/{id}/events"): Row(200, body={"event": "e"}, shown_by=ANY_TOPIC),
    ("GET", "/metrics"): Row(200, shown_by="test_metrics: test_keys_see_what_they_may"),
    ("GET", "/v0/metrics"): Row(200, shown_by="test_metrics: test_keys_see_what_they_may"),
}
DECLARED = {route: needs for route, needs in scopes().items() if route != ("GET", "/openapi.json")}
OPEN, SIGNED_IN, OF_TOKENS = (
    {route for route, needs in DECLARED.items() if needs == word} for word in ("none", "any", "token")
)
TABLE = ROWS | {route: Row() for route in DECLARED if route not in {*ROWS, *OPEN, *SIGNED_IN, *OF_TOKENS}}
# What a user may do who is granted write or consume there, and nothing else.
CONSUMES = {
    *(("POST", f"{T}/{verb}") for verb in ("claim", "ack", "nack", "fail", "extend")),
    *(("POST", f"/api/messages/{verb}") for verb in ("dequeue", "ack")),
    *(("POST", f"/api/messages/{{id}}/{verb}") for verb in ("ack", "nack", "extend")),
    ("GET", f"{T}/work"),
    ("POST", "/v0/claim"),
}
ANY_USER = {("GET", "/metrics"), ("GET", "/v0/metrics")}
RIGHTS = {"read": "read", "write": "write", "delete": "admin", "admin": "admin"}
