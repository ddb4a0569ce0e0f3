"""A row for each route: what it needs, and what a key of other topics meets."""

from __future__ import annotations

from dataclasses import dataclass

from tests.api.dialect import Body

# What needs no key: how the service is, and what its routes are. Neither shows anything of what it holds.
OPEN = {("GET", "/healthz"), ("GET", "/v0/health"), ("GET", "/readyz"), ("GET", "/v0/ready")}
OPEN |= {("GET", "/api/version"), ("GET", "/api/auth/status"), ("POST", "/api/auth/login")}
SIGNED_IN = {("POST", "/api/auth/refresh")}  # any user
OF_TOKENS = {("GET", "/v0/users/{id}/events")}  # test_user_events has who may
FOREIGN = "foreign.topic"
NO_WATCH = f"wid_{'A' * 22}"
OF_BROWSERS = {("GET", "/v0/topics/{topic}/work"), ("GET", "/v0/watch/{wid}")}


@dataclass(frozen=True, slots=True)
class Row:
    """`scopes`: all of them are needed. `foreign`: what a key of other prefixes meets. 403 where the topic is in the
    path, or named by `body`; 404 where what the path names is out of its reach; 200 where the answer holds only what is
    within it, which the test named by `shown_by` sees to."""

    scopes: str
    foreign: int
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
TABLE = {
    ("PUT", T): Row("admin", 403, {"type": "queue"}),
    ("GET", T): Row("read", 403),
    ("DELETE", T): Row("delete", 403),
    ("POST", T): Row("write", 403, {"records": [{"data": 1}]}),
    ("POST", f"{T}/diff"): Row("read", 403, {}),
    ("POST", f"{T}/delete"): Row("delete", 403, {"before_seq": 1}),
    ("GET", f"{T}/failures"): Row("read", 403),
    ("GET", f"{T}/explain"): Row("read", 403),
    ("GET", f"{T}/scale"): Row("read", 403),
    ("GET", f"{T}/asof"): Row("read", 403, query="?at=2999-01-01T00:00:00Z"),
    ("GET", f"{T}/asof/jobs"): Row("read", 403, query="?at=2999-01-01T00:00:00Z"),
    ("GET", f"{T}/jobs/{{seq}}/explain"): Row("read", 403),
    ("GET", f"{T}/jobs/{{seq}}/history"): Row("read", 403),
    ("GET", f"{T}/jobs"): Row("read", 403),
    ("GET", f"{T}/jobs/{{seq}}"): Row("read", 403),
    ("PATCH", f"{T}/jobs/{{seq}}"): Row("write", 403, {"tag": "t"}),
    ("POST", f"{T}/cancel"): Row("write", 403, {"seqs": []}),
    ("POST", f"{T}/release"): Row("write", 403, {"seqs": []}),
    ("POST", f"{T}/operations"): Row("write", 403, {"kind": "cancel", "filter": {"tag": "t"}}),
    ("GET", f"{T}/jobs/{{seq}}/result"): Row("read", 403),
    ("POST", f"{T}/pause"): Row("admin", 403),
    ("POST", f"{T}/resume"): Row("admin", 403),
    ("POST", f"{T}/drain"): Row("admin", 403),
    ("GET", f"{T}/stats"): Row("read", 403, query="?by=tenant"),
    ("GET", f"{T}/stats/history"): Row("read", 403),
    ("DELETE", f"{T}/failures/{{cluster}}"): Row("delete", 403),
    ("POST", f"{T}/claim"): Row("read+write", 403, {"node": "n"}),
    ("POST", "/v0/claim"): Row("read+write", 403, {"node": "n", "topics": [FOREIGN]}),
    ("POST", f"{T}/ack"): Row("write", 403, {"node": "n", "seqs": []}),
    ("POST", f"{T}/nack"): Row("write", 403, {"node": "n", "seqs": []}),
    ("POST", f"{T}/fail"): Row("write", 403, {"node": "n", "seqs": []}),
    ("POST", f"{T}/extend"): Row("write", 403, {"node": "n", "seqs": [], "lease_ms": 1_000}),
    ("GET", f"{T}/work"): Row("read+write", 403, query="?node=n"),
    ("POST", f"{T}/requeue"): Row("write", 403, {"filter": {}, "dry_run": True}),
    ("GET", f"{T}/operations"): Row("read", 403),
    ("GET", "/v0/operations/{id}"): Row("read", 404),
    ("POST", "/v0/operations/{id}/cancel"): Row("write", 404),
    ("POST", "/v0/watch"): Row("read", 403, {"topics": {FOREIGN: {}}}),
    ("GET", "/v0/watch/{wid}"): Row("read", 404),
    ("GET", "/v0/topics"): Row("read", 200, shown_by="test_access: test_a_list_shows_a_key_its_own_topics"),
    ("GET", "/v0/overview"): Row("read", 200, shown_by="test_overview: test_a_key_sees_its_own_topics"),
    ("POST", "/v0/keys"): Row("admin", 403, {"name": "k", "scopes": ["read"], "prefixes": [FOREIGN]}),
    ("GET", "/v0/keys"): Row(
        "admin", 200, shown_by="test_keys: test_a_key_neither_sees_nor_touches_one_that_may_do_more"
    ),
    ("GET", "/v0/keys/{id}"): Row("admin", 404),
    ("POST", "/v0/keys/{id}/rotate"): Row("admin", 404, {}),
    ("DELETE", "/v0/keys/{id}"): Row("admin", 404),
    ("GET", "/v0/views"): Row("read", 200, shown_by=VIEWS),
    ("DELETE", "/v0/views/{name}"): Row("read", 404),  # ahead of the next one, which makes it
    ("PUT", "/v0/views/{name}"): Row("read", 200, {"address": "/admin/"}, shown_by=VIEWS),
    ("GET", "/v0/admin/audit"): Row(
        "admin", 200, shown_by="test_audit: test_a_key_with_prefixes_sees_the_entries_of_its_topics"
    ),
    ("GET", "/v0/admin/horizon"): Row("admin", 403),
    ("GET", "/v0/schedules"): Row("admin", 200, shown_by=SCHEDULES),
    ("PUT", "/v0/schedules/{name}"): Row("admin", 403, {"topic": FOREIGN, "cron": "0 0 1 1 *", "record": {"data": 1}}),
    ("GET", "/v0/schedules/{name}"): Row("admin", 404),
    **{("POST", f"/v0/schedules/{{name}}/{verb}"): Row("admin", 404) for verb in ("run", "pause", "resume")},
    ("DELETE", "/v0/schedules/{name}"): Row("admin", 404),
    ("POST", "/api/messages"): Row("write", 403, {"topic": FOREIGN, "payload": "x"}),
    ("POST", "/api/messages/batch"): Row("write", 403, {"topic": FOREIGN, "messages": [{"payload": "x"}]}),
    ("POST", "/api/messages/dequeue"): Row("read+write", 403, {"topic": FOREIGN}),
    ("POST", "/api/messages/ack"): Row("write", 200, {"ids": []}, shown_by=OF_OTHERS),
    ("POST", "/api/messages/{id}/ack"): Row("write", 404),
    ("POST", "/api/messages/{id}/nack"): Row("write", 404),
    ("POST", "/api/messages/{id}/extend"): Row("write", 404),
    ("POST", "/api/messages/{id}/requeue"): Row("write", 404),
    ("POST", "/api/topics/{topic}/requeue"): Row("write", 403, {"filter": {}, "dry_run": True}),
    ("GET", "/api/messages"): Row("read", 403),
    ("GET", "/api/messages/{id}"): Row("read", 404),
    ("GET", "/api/stats"): Row("admin", 200, shown_by=OF_OTHERS),
    ("POST", "/api/topics/{topic}/purge"): Row("admin", 403),
    ("POST", "/api/topics/{topic}/replay"): Row("write+admin", 403, {}),
    ("GET", "/api/topics/{topic}/message-log"): Row("read+admin", 403),
    ("DELETE", "/api/topics/{topic}/message-log"): Row("delete+admin", 403, query="?before=2000-01-01T00:00:00Z"),
    ("POST", "/api/admin/archive-reaper/run"): Row("admin", 403),
    ("GET", "/v0/admin/reapers"): Row("admin", 403),
    ("GET", "/v0/admin/reapers/{name}/runs"): Row("admin", 403),
    ("POST", "/v0/admin/reapers/{name}/run"): Row("admin", 403),
    ("POST", "/api/admin/expiry-reaper/run"): Row("admin", 403),
    ("POST", "/api/admin/delete-reaper/run"): Row("admin", 403),
    ("GET", "/api/admin/delete-reaper/schedule"): Row("admin", 403),
    ("PUT", "/api/admin/delete-reaper/schedule"): Row("admin", 403, {"schedule": ""}),
    ("GET", C): Row("admin", 200, shown_by="test_topic_configs: test_a_key_sees_and_changes_its_own_topics"),
    ("GET", f"{C}/{{topic}}"): Row("admin", 403),
    ("PUT", f"{C}/{{topic}}"): Row("admin", 403, {}),
    ("DELETE", f"{C}/{{topic}}"): Row("admin", 403),
    ("GET", S): Row("admin", 200, shown_by="test_topic_schemas: test_a_key_sees_and_changes_its_own_topics"),
    ("GET", f"{S}/{{topic}}"): Row("admin", 403),
    ("PUT", f"{S}/{{topic}}"): Row("admin", 403, {"schema_json": "{}"}),
    ("DELETE", f"{S}/{{topic}}"): Row("admin", 403),
    ("DELETE", "/api/topics/{topic}/messages/by-key/{key}"): Row("admin", 403),
    ("GET", USERS): Row("admin", 403),
    ("POST", USERS): Row("admin", 403, {"username": "made-here", "password": "twelve chars and more"}),
    ("PUT", f"{USERS}/{{id}}"): Row("admin", 403, {}),
    ("DELETE", f"{USERS}/{{id}}"): Row("admin", 403),
    ("GET", f"{USERS}/{{id}}/grants"): Row("admin", 403),
    ("POST", f"{USERS}/{{id}}/grants"): Row("admin", 403, {"action": "read"}),
    ("DELETE", f"{USERS}/{{id}}/grants/{{grant_id}}"): Row("admin", 403),
    ("POST", "/in/{topic}"): Row("write", 403),
    ("POST", "/in/{topic}/{group}"): Row("write", 403),
    ("POST", "/in/{topic}/{group}/{dedupe}"): Row("write", 403),
    ("POST", "/v0/users/{id}/token"): Row("admin", 403, {}),
    ("POST", "/v0/users/{id}/events"): Row("write", 200, {"event": "e"}, shown_by=ANY_TOPIC),
    ("GET", "/metrics"): Row("read", 200, shown_by="test_metrics: test_keys_see_what_they_may"),
    ("GET", "/v0/metrics"): Row("read", 200, shown_by="test_metrics: test_keys_see_what_they_may"),
}
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
