"""Every route against its row in a table: a route without one fails, and a row that docs/keys.md does not have."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.keyring import ALL, Services, bearer, client, make
from tests.api.people import add_user, basic, token_of

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

MANUAL = Path(__file__).parents[2] / "docs/keys.md"
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
WHEN: Body = {"topic": FOREIGN, "cron": "0 0 1 1 *"}
ANY_TOPIC = "test_user_events: test_who_may_write_may_send_whatever_the_keys_topics"
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
    ("GET", f"{T}/asof"): Row("read", 403, query="?at=2999-01-01T00:00:00Z"),
    ("GET", f"{T}/jobs/{{seq}}/explain"): Row("read", 403),
    ("GET", f"{T}/jobs/{{seq}}/history"): Row("read", 403),
    ("GET", f"{T}/jobs"): Row("read", 403),
    ("GET", f"{T}/jobs/{{seq}}"): Row("read", 403),
    ("PATCH", f"{T}/jobs/{{seq}}"): Row("write", 403, {"tag": "t"}),
    ("POST", f"{T}/cancel"): Row("write", 403, {"seqs": []}),
    ("GET", f"{T}/jobs/{{seq}}/result"): Row("read", 403),
    ("POST", f"{T}/pause"): Row("admin", 403),
    ("POST", f"{T}/resume"): Row("admin", 403),
    ("POST", f"{T}/drain"): Row("admin", 403),
    ("GET", f"{T}/stats"): Row("read", 403, query="?by=tenant"),
    ("DELETE", f"{T}/failures/{{cluster}}"): Row("delete", 403),
    ("POST", f"{T}/claim"): Row("read+write", 403, {"node": "n"}),
    ("POST", f"{T}/ack"): Row("write", 403, {"node": "n", "seqs": []}),
    ("POST", f"{T}/nack"): Row("write", 403, {"node": "n", "seqs": []}),
    ("POST", f"{T}/fail"): Row("write", 403, {"node": "n", "seqs": []}),
    ("POST", f"{T}/extend"): Row("write", 403, {"node": "n", "seqs": [], "lease_ms": 1_000}),
    ("GET", f"{T}/work"): Row("read+write", 403, query="?node=n"),
    ("POST", f"{T}/requeue"): Row("write", 403, {"filter": {}, "dry_run": True}),
    ("GET", "/v0/operations/{id}"): Row("read", 404),
    ("POST", "/v0/operations/{id}/cancel"): Row("write", 404),
    ("POST", "/v0/watch"): Row("read", 403, {"topics": {FOREIGN: {}}}),
    ("GET", "/v0/watch/{wid}"): Row("read", 404),
    ("GET", "/v0/topics"): Row("read", 200, shown_by="test_access: test_a_list_shows_a_key_its_own_topics"),
    ("POST", "/v0/keys"): Row("admin", 403, {"name": "k", "scopes": ["read"], "prefixes": [FOREIGN]}),
    ("GET", "/v0/keys"): Row(
        "admin", 200, shown_by="test_keys: test_a_key_neither_sees_nor_touches_one_that_may_do_more"
    ),
    ("GET", "/v0/keys/{id}"): Row("admin", 404),
    ("POST", "/v0/keys/{id}/rotate"): Row("admin", 404, {}),
    ("DELETE", "/v0/keys/{id}"): Row("admin", 404),
    ("GET", "/v0/admin/audit"): Row(
        "admin", 200, shown_by="test_audit: test_a_key_with_prefixes_sees_the_entries_of_its_topics"
    ),
    ("GET", "/v0/admin/horizon"): Row("admin", 403),
    ("GET", "/v0/schedules"): Row("admin", 200, shown_by=SCHEDULES),
    ("PUT", "/v0/schedules/{name}"): Row("admin", 403, {**WHEN, "record": {"data": 1}}),
    ("GET", "/v0/schedules/{name}"): Row("admin", 404),
    **{("POST", f"/v0/schedules/{{name}}/{verb}"): Row("admin", 404) for verb in ("run", "pause", "resume")},
    ("DELETE", "/v0/schedules/{name}"): Row("admin", 404),
    ("GET", "/api/schedules"): Row("admin", 200, shown_by=SCHEDULES),
    ("PUT", "/api/schedules/{name}"): Row("admin", 403, {**WHEN, "message": {"payload": "1"}}),
    ("GET", "/api/schedules/{name}"): Row("admin", 404),
    **{("POST", f"/api/schedules/{{name}}/{verb}"): Row("admin", 404) for verb in ("run", "pause", "resume")},
    ("DELETE", "/api/schedules/{name}"): Row("admin", 404),
    ("POST", "/api/messages"): Row("write", 403, {"topic": FOREIGN, "payload": "x"}),
    ("POST", "/api/messages/batch"): Row("write", 403, {"topic": FOREIGN, "messages": [{"payload": "x"}]}),
    ("POST", "/api/messages/dequeue"): Row("read+write", 403, {"topic": FOREIGN}),
    ("POST", "/api/messages/ack"): Row("write", 200, {"ids": []}, shown_by=OF_OTHERS),
    ("POST", "/api/messages/{id}/ack"): Row("write", 404),
    ("POST", "/api/messages/{id}/nack"): Row("write", 404),
    ("POST", "/api/messages/{id}/fail"): Row("write", 404),
    ("POST", "/api/messages/{id}/extend"): Row("write", 404),
    ("POST", "/api/messages/{id}/cancel"): Row("write", 404),
    ("POST", "/api/messages/{id}/requeue"): Row("write", 404),
    ("POST", "/api/topics/{topic}/requeue"): Row("write", 403, {"filter": {}, "dry_run": True}),
    ("GET", "/api/operations/{id}"): Row("read", 404),
    ("POST", "/api/operations/{id}/cancel"): Row("write", 404),
    ("GET", "/api/messages"): Row("read", 403),
    ("GET", "/api/messages/{id}"): Row("read", 404),
    ("GET", "/api/messages/{id}/result"): Row("read", 404),
    ("GET", "/api/stats"): Row("admin", 200, shown_by=OF_OTHERS),
    ("POST", "/api/topics/{topic}/purge"): Row("admin", 403),
    ("GET", "/api/topics/{topic}/failures"): Row("read", 403),
    ("POST", "/api/topics/{topic}/replay"): Row("write+admin", 403, {}),
    ("GET", "/api/topics/{topic}/message-log"): Row("read+admin", 403),
    ("DELETE", "/api/topics/{topic}/message-log"): Row("delete+admin", 403, query="?before=2000-01-01T00:00:00Z"),
    ("POST", "/api/admin/archive-reaper/run"): Row("admin", 403),
    ("GET", "/v0/admin/reapers"): Row("admin", 403),
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
    *(("POST", f"/api/messages/{{id}}/{verb}") for verb in ("ack", "nack", "fail", "extend")),
    ("GET", f"{T}/work"),
}
ANY_USER = {("GET", "/metrics"), ("GET", "/v0/metrics")}
RIGHTS = {"read": "read", "write": "write", "delete": "admin", "admin": "admin"}
EACH = pytest.mark.parametrize("route", TABLE, ids=" ".join)


@pytest.fixture(scope="module")
async def service(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    return await (await Services.make(serve, new_database)).start(api_keys="root", bcrypt_cost=10)


@pytest.fixture
async def http(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service) as http:
        yield http


@pytest.fixture(scope="module")
async def keys(service: Running) -> dict[str, Body]:
    """A key for each scope alone, by its name; "mine" may do everything in topics of its own; and two of nobody's."""
    async with client(service, "root") as root:
        await Topic(root, FOREIGN).put()
        made = {scope: await make(root, scope, [scope]) for scope in ALL}
        made["mine"] = await make(root, "mine", prefixes=["mine."])
        made["other"], made["spare"] = [await make(root, name) for name in ("other", "spare")]
    return made


@pytest.fixture(scope="module")
async def people(service: Running, keys: dict[str, Body]) -> dict[str, dict[str, str]]:
    """Users who have signed in: one for each right alone; "mine" with all of them, in topics of its own; "nothing"
    with none; and an admin."""
    grants = {right: [right] for right in ("read", "write", "consume", "admin")}
    grants |= {"mine": [f"{right} mine.*" for right in ("read", "write", "admin")], "nothing": [], "boss": []}
    shown = {}
    async with client(service, "root") as root:
        for name, granted in grants.items():
            await add_user(root, *granted, name=name, is_admin=name == "boss")
            shown[name] = await token_of(root, name)
    return shown


def routes(service: Running) -> set[tuple[str, str]]:
    found = {(m, r.path_format) for r in service.app.routes if isinstance(r, APIRoute) for m in r.methods or ()}
    assert found
    return found


async def ask(http: httpx.AsyncClient, route: tuple[str, str], key_id: str, headers: dict[str, str]) -> httpx.Response:
    method, path = route
    row = TABLE[route]
    url = (
        path.replace("{topic}", FOREIGN)
        .replace("{id}", key_id)
        .replace("{wid}", NO_WATCH)
        .replace("{name}", "expiry")
        .replace("{cluster}", "0" * 16)
        + row.query
    )
    content = {} if row.body is None else {"json": row.body}
    request = http.build_request(method, url, headers=headers, **content)  # type: ignore[arg-type]
    response = await http.send(request, stream=True)
    if response.status_code != 200:
        await response.aread()
    await response.aclose()
    return response


def test_every_route_has_a_row_and_no_row_is_without_its_route(service: Running) -> None:
    assert routes(service) == set(TABLE) | OPEN | SIGNED_IN | OF_TOKENS


async def test_nothing_else_answers_without_a_key(service: Running, http: httpx.AsyncClient) -> None:
    others = {getattr(r, "path", str(r)) for r in service.app.routes if not isinstance(r, APIRoute)}
    # The first says what the routes are, and nothing of what the service holds; the pages are those below.
    assert others == {"/openapi.json", "/admin"}
    for path in {path for method, path in OPEN if method == "GET"} | {"/openapi.json", "/admin/static/admin.css"}:
        assert (await http.get(path)).status_code == 200


async def test_pages_need_a_key_as_their_routes_do(
    service: Running, http: httpx.AsyncClient, keys: dict[str, Body]
) -> None:
    (mount,) = [r for r in service.app.routes if isinstance(r, Mount)]
    pages = {r.path for r in mount.routes if isinstance(r, Route)}
    assert pages == {"/", "/static/admin.css", "/horizon"}  # the first only leads to the last
    for path in pages - {"/", "/static/admin.css"}:
        assert (await http.get(f"/admin{path}")).status_code == 401
        for key, status in (("read", 403), ("mine", 403), ("other", 200)):
            assert (await http.get(f"/admin{path}", headers=bearer(keys[key]["secret"]))).status_code == status


def test_the_manual_has_the_same_table() -> None:
    rows = re.findall(r"^\| `(\w+) (/\S+)` \| ([a-z+]+) \|", MANUAL.read_text(), re.MULTILINE)
    assert {(method, path): scopes for method, path, scopes in rows} == {
        **{route: row.scopes for route, row in TABLE.items()},
        **dict.fromkeys([*OPEN, ("GET", "/openapi.json")], "none"),
        **dict.fromkeys(SIGNED_IN, "any"),
        **dict.fromkeys(OF_TOKENS, "token"),
    }


@EACH
async def test_it_refuses_who_shows_no_key(
    http: httpx.AsyncClient, keys: dict[str, Body], route: tuple[str, str]
) -> None:
    for headers in ({}, bearer("hf_guess"), {"authorization": "Basic cm9vdA=="}):
        refused(await ask(http, route, keys["other"]["id"], headers), 401, "unauthorized")


@EACH
async def test_it_needs_each_of_its_scopes(
    service: Running, http: httpx.AsyncClient, keys: dict[str, Body], route: tuple[str, str]
) -> None:
    needed = TABLE[route].scopes.split("+")
    for scope in ALL:
        answer = await ask(http, route, keys["other"]["id"], bearer(keys[scope]["secret"]))
        missing = [word for word in needed if word != scope]
        if missing:
            assert f"the scope {'+'.join(missing)}." in refused(answer, 403, "forbidden")["message"]
        else:
            assert answer.status_code != 401, answer.text
            assert "lacks" not in answer.text if answer.status_code == 403 else True
            if route == ("DELETE", T):
                async with client(service, "root") as root:
                    await Topic(root, FOREIGN).put()


@EACH
async def test_a_key_of_other_topics_gets_nowhere(
    http: httpx.AsyncClient, keys: dict[str, Body], route: tuple[str, str]
) -> None:
    row = TABLE[route]
    answer = await ask(http, route, keys["other"]["id"], bearer(keys["mine"]["secret"]))
    if row.foreign == 200:
        assert answer.status_code == 200
        file, _, name = row.shown_by.partition(": ")
        assert f"def {name}(" in Path(__file__).parent.joinpath(f"{file}.py").read_text()
    else:
        refused(answer, row.foreign, {403: "forbidden", 404: "not_found"}[row.foreign])


@EACH
async def test_a_user_needs_a_grant_of_each_of_its_scopes(
    service: Running,
    http: httpx.AsyncClient,
    keys: dict[str, Body],
    people: dict[str, dict[str, str]],
    route: tuple[str, str],
) -> None:
    needed = {RIGHTS[scope] for scope in TABLE[route].scopes.split("+")}
    for right in ("read", "write", "consume", "admin", "nothing"):
        allowed = right in {"write", "consume"} if route in CONSUMES else needed == {right}
        answer = await ask(http, route, keys["other"]["id"], people[right])
        if allowed or route in ANY_USER:
            assert answer.status_code != 401, answer.text
            assert "granted" not in answer.text if answer.status_code == 403 else True
            if route == ("DELETE", T):
                async with client(service, "root") as root:
                    await Topic(root, FOREIGN).put()
        else:
            assert "Nothing that is granted to this user" in refused(answer, 403, "forbidden")["message"]


@EACH
async def test_an_admin_bypasses_grants_and_may_sign_in_in_each_way(
    service: Running,
    http: httpx.AsyncClient,
    keys: dict[str, Body],
    people: dict[str, dict[str, str]],
    route: tuple[str, str],
) -> None:
    for headers in (people["boss"], basic("boss")):
        answer = await ask(http, route, keys["spare"]["id"], headers)
        assert answer.status_code not in {401, 403}, answer.text
        if route == ("DELETE", T):
            async with client(service, "root") as root:
                await Topic(root, FOREIGN).put()


@EACH
async def test_a_user_of_other_topics_gets_nowhere(
    http: httpx.AsyncClient, keys: dict[str, Body], people: dict[str, dict[str, str]], route: tuple[str, str]
) -> None:
    row = TABLE[route]
    answer = await ask(http, route, keys["other"]["id"], people["mine"])
    if row.foreign == 200:
        assert answer.status_code == 200
    else:
        refused(answer, row.foreign, {403: "forbidden", 404: "not_found"}[row.foreign])


@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_topics_that_a_body_names_are_looked_at_too(
    http: httpx.AsyncClient, keys: dict[str, Body], method: str, topic: str
) -> None:
    config = {"type": "queue", "dead_letter": FOREIGN}
    body = config if method == "PUT" else {"records": [{"data": 1}], "config": config}
    headers = bearer(keys["mine"]["secret"])
    error = refused(
        await http.request(method, f"/v0/topics/mine.{topic}", json=body, headers=headers), 403, "forbidden"
    )
    assert error["detail"] == {"topic": FOREIGN}
    config["dead_letter"] = f"mine.{topic}.dead"
    accepted(await http.request(method, f"/v0/topics/mine.{topic}", json=body, headers=headers))


@pytest.mark.parametrize("route", [route for route in TABLE if route not in OF_BROWSERS], ids=" ".join)
async def test_no_other_route_takes_a_key_from_the_query(
    http: httpx.AsyncClient, keys: dict[str, Body], route: tuple[str, str]
) -> None:
    method, path = route
    url = path.replace("{topic}", FOREIGN).replace("{id}", keys["other"]["id"])
    query = {"token": keys["other"]["secret"]}
    refused(await http.request(method, url, params=query, json=TABLE[route].body), 401, "unauthorized")
