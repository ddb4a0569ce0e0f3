"""Who may see jobs need not see what is in them: a key or grant that hides payloads, on every route and page."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from app.http.sight import WHY
from app.main import ALL_PAGES
from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.keyring import Services, client, make
from tests.api.people import add_user, token_of
from tests.api.scopes import TABLE
from tests.api.watches import watching

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

SECRET = "what-nobody-else-sees"
BASE64 = base64.b64encode(f'{{"card":"{SECRET}"}}'.encode()).decode()
HIDDEN = {"payloads": "hidden"}
# What shows payloads to whoever may see them: the test of all routes would pass if it looked at nothing.
SHOW = {
    "/v0/topics/{topic}/jobs",
    "/v0/topics/{topic}/jobs/{seq}",
    "/v0/topics/{topic}/jobs/{seq}/result",
    "/api/messages",
    "/api/messages/{id}",
    "/api/topics/{topic}/message-log",
    "/v0/schedules/{name}",
    "/admin/topics/{topic}/jobs/{seq}",
    "/admin/topics/{topic}/dead/jobs",
    "/admin/schedules/{name}",
    "/admin/schedules/{name}/edit",
}


@pytest.fixture(scope="module")
async def service(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    return await (await Services.make(serve, new_database)).start(api_keys="root", bcrypt_cost=10)


@pytest.fixture
async def root(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service, "root") as http:
        yield http


@pytest.fixture
async def blind(service: Running, root: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose key may do anything, and sees no payloads."""
    made = await make(root, payloads="hidden")
    assert made["payloads"] == "hidden"
    async with client(service, made["secret"]) as http:
        yield http


@pytest.fixture(scope="module")
async def jobs(service: Running) -> dict[str, int]:
    """A queue "mail" with a job that waits, one that was completed, and one that failed for good; its dead letters'
    topic, a log, and a schedule: by name, their seqs."""
    async with client(service, "root") as http:
        topic = Topic(http, "mail")
        await topic.put(replayable=True, dead_letter="mail.dlq")
        record = {"data": {"card": SECRET}, "meta": {"of": SECRET}}
        done, failed, waits = (await topic.append(record, record, record))["seqs"]
        await topic.claim(max=2)
        await topic.ack("n", [done], results=[{"sent": SECRET}])
        await topic.fail("n", [failed], errors=["smtp: refused"])
        await Topic(http, "visits").put(type="log")
        await Topic(http, "visits").append(record)
        schedule = {"topic": "mail", "cron": "0 0 1 1 *", "record": record}
        accepted(await http.put("/v0/schedules/yearly", json=schedule))
    return {"done": done, "failed": failed, "waits": waits}


async def paths(http: httpx.AsyncClient, jobs: dict[str, int]) -> list[tuple[str, str]]:
    """Every route and page that only looks: as it is written, and with what there is to be seen."""
    listed = (await http.get("/api/messages", params={"topic": "mail"})).json()["items"]
    dead = accepted(await http.get("/v0/topics/mail.dlq/jobs"))["jobs"][0]["seq"]
    written = [path for method, path in TABLE if method == "GET" and not path.endswith(("/work", "/watch/{wid}"))]
    written += [f"/admin{page.path}" for page in ALL_PAGES if page.method == "GET"]
    found = []
    for path in written:
        for seq in jobs.values():
            one = path.replace("{topic}", "mail").replace("{seq}", str(seq)).replace("{name}", "yearly")
            found.append((path, re.sub(r"\{[a-z_]+\}", listed[0]["id"], one)))
        found.append((path, path.replace("{topic}", "mail.dlq").replace("{seq}", str(dead))))
    found.append(("/admin/topics/{topic}/dead/jobs", f"/admin/topics/mail/dead/jobs?at=mail.dlq:{dead}"))
    return found


async def showing(http: httpx.AsyncClient, asked: list[tuple[str, str]]) -> set[str]:
    """Which of them tell what is in a job."""
    found = set()
    for written, path in dict.fromkeys(asked):
        text = (await http.get(path)).text
        if SECRET in text or BASE64 in text:
            found.add(written)
    return found


async def test_no_route_and_no_page_shows_what_is_hidden(
    root: httpx.AsyncClient, blind: httpx.AsyncClient, jobs: dict[str, int]
) -> None:
    asked = await paths(root, jobs)
    assert await showing(root, asked) == SHOW
    assert await showing(blind, asked) == set()


async def test_where_a_payload_would_stand_it_says_why(blind: httpx.AsyncClient, jobs: dict[str, int]) -> None:
    job = accepted(await blind.get(f"/v0/topics/mail/jobs/{jobs['waits']}"))
    assert (job["hidden"], {"data", "meta"} & set(job)) == (WHY, set())
    result = accepted(await blind.get(f"/v0/topics/mail/jobs/{jobs['done']}/result"))
    assert (result["state"], result["hidden"], "result" in result) == ("completed", WHY, False)
    (message, *_) = (await blind.get("/api/messages?topic=mail")).json()["items"]
    assert (message["hidden"], {"payload", "metadata"} & set(message)) == (WHY, set())
    failure = "/admin/topics/mail/dead/jobs?at=mail.dlq:1"
    for page in (f"/admin/topics/mail/jobs/{jobs['waits']}", failure, "/admin/schedules/yearly"):
        assert WHY in (await blind.get(page)).text
    assert "smtp: refused" in (await blind.get(failure)).text  # errors are no payloads
    assert (await blind.get("/admin/schedules/yearly/edit")).status_code == 403
    changed = accepted(await blind.patch(f"/v0/topics/mail/jobs/{jobs['waits']}", json={"tag": "t"}))
    assert (changed["tag"], "data" in changed) == ("t", False)
    assert "record" not in accepted(await blind.post("/v0/schedules/yearly/pause"))


async def test_who_sees_no_payloads_takes_no_jobs_and_reads_no_records(
    blind: httpx.AsyncClient, jobs: dict[str, int]
) -> None:
    without = {"include_data": False, "include_meta": False}
    asked: list[tuple[str, Body]] = [
        ("/v0/topics/mail/claim", {"node": "n"}),
        ("/v0/topics/mail/ack", {"node": "n", "seqs": [jobs["waits"]]}),
        ("/v0/topics/mail/diff", {"node": "n"}),
        ("/v0/topics/visits/diff", {"include_data": False}),
        ("/v0/watch", {"topics": {"visits": None}, "include_data": False}),
        ("/api/messages/dequeue", {"topic": "mail"}),
    ]
    for path, body in asked:
        refused(await blind.post(path, json=body), 403, "forbidden")
    assert (await blind.get("/v0/topics/mail/work?node=n")).status_code == 403
    read = accepted(await blind.post("/v0/topics/visits/diff", json=without))
    assert [sorted(one) for one in read["records"]] == [["$seq", "$ts"]]
    accepted(await blind.post("/v0/watch", json={"topics": {"visits": None}, **without}))
    accepted(await blind.post("/v0/topics/mail/cancel", json={"seqs": []}))


async def test_who_sees_no_payloads_finds_nothing_by_them(
    service: Running, root: httpx.AsyncClient, jobs: dict[str, int]
) -> None:
    key = await make(root, "no filters", ["read", "write"], prefixes=["mail"], payloads="hidden")
    asked = {"kind": "cancel", "filter": {"data": ["card=1"]}, "dry_run": True}
    async with client(service, key["secret"]) as http:
        accepted(await http.get("/v0/topics/mail/jobs", params={"tag": "t"}))
        refused(await http.get("/v0/topics/mail/jobs", params={"data": "card=1"}), 403, "forbidden")
        refused(await http.post("/v0/topics/mail/operations", json=asked), 403, "forbidden")
        refused(await http.post("/v0/topics/mail/cancel", json={"filter": asked["filter"]}), 403, "forbidden")
        for page in ("/admin/topics/mail/jobs", "/admin/topics/mail/jobs/cancel"):
            assert (await http.get(page, params={"q": "data.card:1"})).status_code == 403, page
        assert "data.card" not in (await http.get("/admin/topics/mail/jobs", params={"q": "da"})).text


async def test_nobody_gives_the_sight_that_they_lack(service: Running, root: httpx.AsyncClient) -> None:
    plain, hidden = await make(root, "plain"), await make(root, "hidden", payloads="hidden")
    user = await add_user(root, "read")
    async with client(service, hidden["secret"]) as http:
        refused(await http.post("/v0/keys", json={"name": "k", "scopes": ["read"]}), 403, "forbidden")
        refused(await http.post(f"/v0/keys/{plain['id']}/rotate"), 404, "not_found")
        listed = {one["id"] for one in accepted(await http.get("/v0/keys"))["keys"]}
        assert hidden["id"] in listed
        assert plain["id"] not in listed
        boss = {"username": "second", "password": "correct horse battery staple", "is_admin": True}
        assert (await http.post("/api/users", json=boss)).status_code == 403
        password = {"password": "another horse battery staple"}
        assert (await http.put(f"/api/users/{user['id']}", json=password)).status_code == 403
        mine = await add_user(http)
        grants = f"/api/users/{mine['id']}/grants"
        assert (await http.post(grants, json={"action": "read"})).status_code == 403
        assert (await http.post(grants, json={"action": "read", **HIDDEN})).status_code == 201
        assert (await http.post("/v0/keys", json={"name": "k", "scopes": ["read"], **HIDDEN})).status_code == 201


async def test_a_users_grants_hide_them_where_none_shows_them(
    service: Running, root: httpx.AsyncClient, jobs: dict[str, int]
) -> None:
    user = await add_user(root, name="ann")
    grants = f"/api/users/{user['id']}/grants"
    for action in ("read", "write"):
        made = await root.post(grants, json={"action": action, "topic_pattern": "mail", **HIDDEN})
        assert made.json()["payloads"] == "hidden"
    assert (await root.post(grants, json={"action": "consume", **HIDDEN})).status_code == 400
    job = f"/v0/topics/mail/jobs/{jobs['waits']}"
    async with client(service) as http:
        http.headers.update(await token_of(root, "ann"))
        assert accepted(await http.get(job))["hidden"] == WHY
        assert (await http.post("/v0/topics/mail/claim", json={"node": "n"})).status_code == 403
        shown = (await root.post(grants, json={"action": "read", "topic_pattern": "ma.*"})).json()
        assert "hidden" in accepted(await http.get(job))  # of other topics
        await root.delete(f"{grants}/{shown['id']}")
        await root.post(grants, json={"action": "consume", "topic_pattern": "mail"})
        assert accepted(await http.get(job))["data"] == {"card": SECRET}
    entries = accepted(await root.get("/v0/admin/audit", params={"subject": user["id"]}))["entries"]
    assert [one["detail"].get("payloads") for one in entries if one["action"] == "grant.made"] == [
        None, None, "hidden", "hidden"
    ]  # fmt: skip


async def test_a_watch_ends_when_its_user_sees_less(root: httpx.AsyncClient, service: Running) -> None:
    user = await add_user(root, name="eve")
    grants = f"/api/users/{user['id']}/grants"
    shown = (await root.post(grants, json={"action": "read", "topic_pattern": "visits"})).json()
    async with client(service) as http:
        http.headers.update(await token_of(root, "eve"))
        made = accepted(await http.post("/v0/watch", json={"topics": {"visits": None}}))
        async with watching(http, made) as stream:
            assert await stream.records(1) == [{"card": SECRET}]
            await root.delete(f"{grants}/{shown['id']}")
            await root.post(grants, json={"action": "read", "topic_pattern": "visits", **HIDDEN})
            frame = await stream.next(20)
            while "event: error" not in frame.text:
                frame = await stream.next(20)
            assert frame.data["code"] == 401
        assert (await http.get(made["stream_url"])).status_code == 403
