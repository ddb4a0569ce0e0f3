"""Users of the application hear of their jobs: what handlers send, and how jobs end; with a token, and only theirs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

from app.kernel.user_events import MOST_AT_ONCE, MOST_STREAMS
from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.api.events import streaming
from tests.api.keyring import Services, bearer, client, make
from tests.api.people import add_user, token_of
from tests.api.watches import WatchStream
from tests.conftest import Running

if TYPE_CHECKING:
    from tests.api.conftest import Serve

Heard = tuple[str, object]


class UserStream(WatchStream):
    """A user's stream."""

    async def events(self, count: int) -> list[Heard]:
        """The next so many events, by name, with their data."""
        frames = [await self.next() for _ in range(count)]
        return [(frame.fields["event"], json.loads(frame.fields["data"])) for frame in frames]


def listening(
    http: httpx.AsyncClient, user_id: str, token: str = "", last: str | None = None, **query: str
) -> AbstractAsyncContextManager[UserStream]:
    headers = bearer(token) if token else {}
    headers |= {} if last is None else {"last-event-id": last}
    return streaming(http, f"/v0/users/{quote(user_id)}/events", UserStream, headers, **query)


async def send(http: httpx.AsyncClient, user_id: str, event: str = "note", **fields: object) -> int:
    answer = await http.post(f"/v0/users/{quote(user_id)}/events", json={"event": event, **fields})
    new: int = accepted(answer)["id"]
    return new


async def token_for(http: httpx.AsyncClient, user_id: str, **fields: object) -> Body:
    return accepted(await http.post(f"/v0/users/{quote(user_id)}/token", json=fields))


@pytest.fixture
def user(topic: str) -> str:
    """A user's id that no other test has."""
    return f"ü {topic}"


async def test_who_listens_hears_what_is_sent_from_then_on(http: httpx.AsyncClient, user: str) -> None:
    await send(http, user, data="before")
    async with listening(http, user) as stream, listening(http, f"{user}'s friend") as other:
        await send(http, user, "step.1", data={"a": [1.50, "\u2028\n"]})
        await send(http, f"{user}'s friend", "other")
        await send(http, user)
        assert await stream.events(2) == [("step.1", {"a": [1.5, "\u2028\n"]}), ("note", None)]
        assert await other.events(1) == [("other", None)]


async def test_a_reader_that_comes_back_misses_nothing(http: httpx.AsyncClient, user: str) -> None:
    ids = [await send(http, user, data=n) for n in range(2 * MOST_AT_ONCE + 3)]
    assert ids == sorted(ids)
    async with listening(http, user, last=str(ids[4])) as stream:
        assert await stream.events(len(ids) - 5) == [("note", n) for n in range(5, len(ids))]
    async with listening(http, user, last_event_id="0") as stream:
        assert await stream.events(len(ids)) == [("note", n) for n in range(len(ids))]
    for unknown in (str(2**62), str(await send(http, f"{user}'s friend"))):
        async with listening(http, user, last=unknown) as stream:
            assert await stream.events(1) == [("missed", {})]
            await send(http, user, data="new")
            assert await stream.events(1) == [("note", "new")]


async def test_events_of_one_user_at_once_all_come_in_the_order_of_their_ids(serve: Serve, user: str) -> None:
    """Through two processes; one hears of the other's by its poll alone."""
    one, other = await serve(), await serve()
    async with client(one) as here, client(other) as there, listening(here, user) as stream:
        sent = await asyncio.gather(*(send((here, there)[n % 2], user, data=n) for n in range(40)))
        frames = [await stream.next() for _ in range(40)]
    ids = [int(frame.fields["id"]) for frame in frames]
    assert ids == sorted(sent)
    assert {json.loads(frame.fields["data"]) for frame in frames} == set(range(40))


async def test_what_comes_from_outside_is_bounded(http: httpx.AsyncClient, user: str) -> None:
    path = f"/v0/users/{quote(user)}/events"
    bodies: list[Body] = [
        {"event": "a\nid: 7"},
        {"event": "completed"},
        {"event": "missed"},
    ]
    for body in bodies:
        refused(await http.post(path, json=body), 400, "invalid_request")
    refused(await http.post(path, json={"event": "a", "data": "x" * 65_535}), 413, "payload_too_large")
    refused(await http.post(f"{path}?a=1", json={"event": "a"}), 400, "invalid_request")
    refused(await http.get(f"{path}?after=1"), 400, "invalid_request")
    for bad in ("/v0/users/a%2Fevents", f"/v0/users/{'x' * 129}/events"):
        refused(await http.post(bad, json={"event": "a"}), 400, "invalid_request")
    for bad in ("x", "-1", "1" * 20, "²"):
        refused(await http.get(path, params={"last_event_id": bad}), 400, "invalid_request")
    async with listening(http, user) as stream:
        for n in range(20):
            await send(http, user, data=str(n) * 30_000)
        assert [len(str(data)) for _, data in await stream.events(20)] == [30_000 * len(str(n)) for n in range(20)]


async def test_a_user_has_so_many_streams(service: Running, http: httpx.AsyncClient, user: str) -> None:
    users = service.context.engine.users
    opened = [await users.open(user, None) for _ in range(MOST_STREAMS)]
    error = refused(await http.get(f"/v0/users/{quote(user)}/events"), 429, "throttled")
    assert error["detail"] == {"limit": "streams_per_user", "max": MOST_STREAMS}
    for listener, _ in opened:
        users.close(listener)
    async with listening(http, user) as stream:
        await send(http, user)
        assert await stream.events(1) == [("note", None)]

    async def nobody() -> bool:
        return users.count() == 0

    await eventually(nobody)


async def test_users_hear_how_their_jobs_end(http: httpx.AsyncClient, queue: Topic, user: str) -> None:
    dead = Topic(http, f"{queue.name}.dead")
    await queue.put(user_events=True, max_deliveries=2, dead_letter=dead.name)
    async with listening(http, user) as stream:

        async def heard(event: str, seq: int) -> None:
            frame = await stream.next()
            told = frame.data
            assert (frame.fields["event"], told["topic"], told["seq"]) == (event, queue.name, seq)
            assert told["id"].endswith(f"-{seq:012x}")

        async def buried() -> bool:
            """A claim takes out what it meets that has no delivery left."""
            assert (await queue.claim())["claimed"] == []
            return (await dead.counts())[0] == 2

        await queue.append(*({"data": n, "user_id": user} for n in range(3)), {"data": 3})
        await queue.claim(max=4)
        await queue.ack("n", [1, 4])
        await heard("completed", 1)
        await queue.fail("n", [2])
        await heard("dead_lettered", 2)
        await queue.nack("n", [3])
        await queue.take(lease_ms=100)  # its last delivery, which ends in silence
        await eventually(buried)
        await heard("dead_lettered", 3)
        await queue.put(user_events=True, max_deliveries=1, on_exhausted="fail")
        await queue.append({"data": 4, "user_id": user})
        await queue.take()
        await queue.nack("n", [5])
        await heard("failed", 5)
        log = Topic(http, f"{queue.name}.log")
        await log.put(type="log", cap_records=1, discard="reject")
        await queue.put(user_events=True, max_deliveries=1, dead_letter=log.name)
        await queue.append(*({"data": n, "user_id": user} for n in range(2)))
        await queue.claim(max=2)
        await queue.nack("n", [6, 7])  # there is room for one
        await heard("dead_lettered", 6)
        await heard("failed", 7)


async def test_jobs_of_other_topics_and_without_users_end_in_silence(http: httpx.AsyncClient, queue: Topic) -> None:
    await queue.append({"data": 1, "user_id": "silent"})
    await queue.take()
    await queue.ack("n", [1])
    await queue.put(user_events=True)
    await queue.append(
        {"data": 2}, {"data": 3, "meta": {"$user_id": "x" * 129}}, {"data": 4, "meta": {"$user_id": None}}
    )
    for job in (await queue.claim(max=5))["claimed"]:
        assert (await queue.ack("n", [job["$seq"]]))["acked"] == 1
    await queue.append({"data": 5, "user_id": "silent"})
    await queue.take()
    assert (await queue.post("cancel", seqs=[5]))["marked"] == 1
    assert (await queue.fail("n", [5]))["failed"] == 1
    async with listening(http, "silent", last_event_id="0") as stream:
        await send(http, "silent", "last")
        assert await stream.events(1) == [("last", None)]


async def test_a_token_is_good_for_one_users_stream_and_public_topics_alone(
    services: Services, guarded: Running
) -> None:
    other_process = await services.start(api_keys="root")
    async with client(guarded, "root") as root, client(guarded) as nobody, client(other_process) as there:
        await Topic(root, "mail").put()
        made = await token_for(root, "ada")
        token = made["token"]
        assert made["user_id"] == "ada"
        async with listening(nobody, "ada", token) as stream, listening(there, "ada", **{"token": token}) as other:
            await send(root, "ada", data=1)
            assert await stream.events(1) == await other.events(1) == [("note", 1)]
        refused(await nobody.get("/v0/users/bob/events", headers=bearer(token)), 403, "forbidden")
        for headers in ({}, bearer("junk"), bearer("root")):
            refused(await nobody.get("/v0/users/ada/events", headers=headers), 401, "unauthorized")
        for method, path in (("GET", "/v0/topics/mail"), ("POST", "/v0/users/ada/events"), ("GET", "/metrics")):
            refused(await nobody.request(method, path, headers=bearer(token), json={}), 401, "unauthorized")
        refused(await nobody.post("/in/mail", headers=bearer(token), json={}), 403, "forbidden")  # public ones alone
        # Nor is a user's own session one for the streams of the application's users.
        account = await add_user(root, name="ada-herself")
        session = await token_of(root, "ada-herself")
        refused(await nobody.get(f"/v0/users/{account['id']}/events", headers=session), 401, "unauthorized")


async def test_a_token_ends_with_its_time_and_cuts_the_stream_off(guarded: Running) -> None:
    async with client(guarded, "root") as root, client(guarded) as nobody:
        token = (await token_for(root, "eve", ttl_ms=2_000))["token"]
        async with listening(nobody, "eve", token) as stream:
            frame = await stream.next()
            assert (frame.fields["event"], frame.data["code"]) == ("error", 401)
            await stream.ended()
        refused(await nobody.get("/v0/users/eve/events", headers=bearer(token)), 401, "unauthorized")
        for ttl in (999, 86_400_001):
            refused(await root.post("/v0/users/eve/token", json={"ttl_ms": ttl}), 400, "invalid_request")


async def test_who_may_write_may_send_whatever_the_keys_topics(guarded: Running) -> None:
    async with client(guarded, "root") as root, client(guarded) as http:
        writer = bearer((await make(root, scopes=["write"], prefixes=["mail."]))["secret"])
        reader = bearer((await make(root, scopes=["read"]))["secret"])
        admin = bearer((await make(root, prefixes=["mail."]))["secret"])
        path = "/v0/users/who/events"
        accepted(await http.post(path, json={"event": "a"}, headers=writer))
        refused(await http.post(path, json={"event": "a"}, headers=reader), 403, "forbidden")
        for key in (writer, reader, admin):  # the last is for some topics only, and a user's events may be of any
            refused(await http.post("/v0/users/who/token", json={}, headers=key), 403, "forbidden")


async def test_streams_that_nobody_needed_a_token_for_end_with_the_first_key(
    serve: Serve, new_database: Callable[[], Awaitable[str]]
) -> None:
    service = await (await Services.make(serve, new_database)).start()
    async with client(service) as http, listening(http, "early") as stream:
        await send(http, "early")
        assert await stream.events(1) == [("note", None)]
        accepted(await http.post("/v0/keys", json={"name": "first", "scopes": ["admin"]}))
        frame = await stream.next()
        assert (frame.fields["event"], frame.data["code"]) == ("error", 401)
        await stream.ended()
