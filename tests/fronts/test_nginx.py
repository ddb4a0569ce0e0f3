"""The supplied nginx.conf in front of two services: what goes through, and what does not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil  # type: ignore[import-untyped]
import pytest
from websockets.asyncio.client import connect

from tests.api.dialect import Topic, accepted, refused
from tests.api.events import HEARTBEAT, WorkStream, streaming, working
from tests.api.raw import get, raw
from tests.fronts.nginx import Fleet, fleet, nginx
from tests.programs import free_port
from tests.steady import Steady

MIB = 1024 * 1024
DRIPPING = 200
KEY = {"authorization": "Bearer k"}


@pytest.fixture(scope="module")
async def front(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], Awaitable[str]]
) -> AsyncIterator[Fleet]:
    """Two services with one key, behind nginx."""
    with fleet(tmp_path_factory.mktemp("nginx"), await new_database(), API_KEYS="k", BCRYPT_COST="10") as made:
        yield made


@pytest.fixture
async def http(front: Fleet) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=front.url, headers=KEY, timeout=35) as client:
        yield client


@pytest.fixture
async def queue(http: httpx.AsyncClient, topic: str) -> Topic:
    made = Topic(http, topic)
    await made.put()
    return made


async def test_a_claim_waits_for_as_long_as_it_may(queue: Topic) -> None:
    waiting = asyncio.create_task(queue.take(wait_ms=30_000))
    await asyncio.sleep(0.2)
    await queue.add(1)
    assert (await waiting)["data"] == 1


async def test_a_body_comes_whole_and_one_that_is_too_large_is_refused_in_its_dialect(queue: Topic) -> None:
    texts = [f"{number} " + "ä" * (MIB // 2 - 10) for number in range(20)]
    await queue.append(*({"data": text} for text in texts))
    jobs = (await queue.claim(max=20))["claimed"]
    assert [job["data"] for job in jobs] == texts
    await queue.ack("n", [job["$seq"] for job in jobs])
    large = b" " * (64 * MIB + 1)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(65):
            yield b" " * MIB

    kind = {"content-type": "application/json"}
    for path in (queue.path, "/api/messages"):
        answer = await queue.http.post(path, content=large, headers={**kind, "x-request-id": "mine-2"})
        refused(answer, 413, "payload_too_large")
        assert answer.headers["x-request-id"] == "mine-2", "though nginx refuses by itself"
    refused(await queue.http.post(queue.path, content=chunks(), headers=kind), 413, "payload_too_large")


async def test_a_header_of_twenty_megabytes_is_refused_and_nobody_keeps_it(front: Fleet) -> None:
    of_all = [psutil.Process(pid) for service in front.services for pid in service.servers()]
    before = sum(one.memory_info().rss for one in of_all)
    async with raw(front.url) as client:
        sending = asyncio.create_task(client.send(b"GET /healthz HTTP/1.1\r\nhost: t\r\nx: ", *[b"v" * MIB] * 20))
        assert (await client.answer()).limit() == (431, "headers_too_large", None)
        await client.closed()
        await sending
    assert sum(one.memory_info().rss for one in of_all) - before < 10 * MIB
    async with raw(front.url) as client:
        assert (await client.ask(get("/healthz", f"x: {'v' * 7000}"))).status == 200


@pytest.mark.parametrize("path", ["/metrics", "/v0/metrics", "/openapi.json", "/docs", "/%6Detrics", "/v0/../metrics"])
async def test_what_is_not_for_everybody_stays_inside(front: Fleet, http: httpx.AsyncClient, path: str) -> None:
    async with raw(front.url) as client:
        assert (await client.ask(get(path, key="k"))).status == 404
    if path == "/metrics":
        inside = await http.get(f"http://127.0.0.1:{front.ports[0]}/metrics")
        assert inside.status_code == 200


async def test_who_tries_to_sign_in_again_and_again_is_held_up(http: httpx.AsyncClient) -> None:
    tries = (http.post("/api/auth/login", json={"username": "a", "password": "b"}) for _ in range(20))
    answers = await asyncio.gather(*tries)
    held = [answer for answer in answers if "from this address" in answer.text]
    assert held
    for answer in held:
        refused(answer, 429, "throttled")
        assert answer.headers["retry-after"] == "1"
    assert accepted(await http.get("/v0/topics"))  # and nobody else is


async def test_the_service_sees_the_clients_address_and_not_what_it_claims(front: Fleet, queue: Topic) -> None:
    own = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
    spoofed = {"x-real-ip": "203.0.113.9", "x-forwarded-for": "203.0.113.9", "forwarded": "for=203.0.113.9"}
    transport = httpx.AsyncHTTPTransport(local_address=own)
    async with httpx.AsyncClient(base_url=front.url, headers=KEY | spoofed, transport=transport) as client:
        await queue.through(client).put(lease_ms=5000)
    changes = accepted(await queue.http.get("/v0/admin/audit", params={"subject": queue.name}))["entries"]
    assert [change["address"] for change in changes] == [own, "127.0.0.1"]


@pytest.mark.slow
async def test_streams_are_heard_and_requests_answered_while_many_drip_their_headers(
    front: Fleet, queue: Topic
) -> None:
    """Also: a stream that has nothing to say stays open for longer than nginx would bear a silence."""
    async with working(queue) as stream, contextlib.AsyncExitStack() as stack:
        place = urlsplit(front.url)
        dripping = []
        for _ in range(DRIPPING):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            stack.callback(writer.close)
            dripping.append(asyncio.create_task(_drip(reader, writer)))
        async with httpx.AsyncClient(base_url=front.url, timeout=20) as client:
            for _ in range(100):
                assert (await client.get("/readyz")).status_code == 200
        assert not all(task.done() for task in dripping)
        # The header's time is up: all of them are sent away.
        await asyncio.wait_for(asyncio.gather(*dripping), 60)
        silent = await stream.frame(30)
        assert silent is not None
        assert silent.text == HEARTBEAT
        await queue.add(1)
        assert (await stream.job())["data"] == 1


async def test_a_users_events_come_over_a_websocket(front: Fleet, http: httpx.AsyncClient) -> None:
    token = accepted(await http.post("/v0/users/ada/token", json={}))["token"]
    address = f"{front.url.replace('http://', 'ws://')}/v0/users/ada/events?token={token}"
    async with connect(address, open_timeout=15) as stream:
        accepted(await http.post("/v0/users/ada/events", json={"event": "packing"}))
        assert json.loads(await asyncio.wait_for(stream.recv(), 15))["event"] == "packing"


async def test_an_admin_page_moves(queue: Topic) -> None:
    async with streaming(queue.http, f"/admin/topics/{queue.name}", WorkStream, {}) as stream:
        await queue.add(7)
        shown = await stream.frame(30)
        while shown is not None and 'title="7"' not in shown.text:
            shown = await stream.frame(30)
        assert shown is not None


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A byte of a header a second, until the other side has enough of it."""
    with contextlib.suppress(ConnectionError):
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: t\r\nx: ")
        while not reader.at_eof():
            writer.write(b"v")
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1000), 1.0)


async def test_a_restart_of_one_after_the_other_refuses_nobody(front: Fleet, queue: Topic) -> None:
    async with Steady(queue.name, KEY) as clients:
        clients.at(front.url)
        for number in (0, 1):
            await clients.go_on()
            await asyncio.to_thread(front.restart, number)
            await clients.go_on()


async def test_where_no_service_answers_it_is_said_in_the_dialect(tmp_path: Path) -> None:
    port = free_port()
    with nginx(tmp_path, port, (free_port(), free_port())):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            for path in "/v0/topics", "/api/topics":
                answer = await client.get(path)
                refused(answer, 503, "not_ready")
                assert answer.headers["retry-after"] == "1"


async def test_a_requests_id_goes_through_or_is_nginxs(http: httpx.AsyncClient) -> None:
    for given, expected in (("mine-1", "mine-1"), ("a b", "[0-9a-f]{32}"), ("x" * 129, "[0-9a-f]{32}")):
        answer = await http.get("/v0/topics", headers={"x-request-id": given})
        assert answer.status_code == 200
        assert re.fullmatch(expected, answer.headers["x-request-id"])
