"""Does the process run, and can it work: with its database, and cut off from it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit, urlunsplit

import httpx
import pytest

from app import __version__
from tests.api.dialect import Topic, eventually, refused
from tests.api.events import working
from tests.pgbouncer import through

if TYPE_CHECKING:
    from tests.api.conftest import Serve


class Link:
    """A TCP proxy to PostgreSQL that can be cut: connections end at once, and new ones are refused."""

    def __init__(self, database_url: str) -> None:
        self._parts = urlsplit(through(database_url))
        self._server: asyncio.Server | None = None
        self._relays: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._port = 0
        self._cut = False

    @property
    def url(self) -> str:
        """The database's address, by this way."""
        user = f"{self._parts.netloc.rpartition('@')[0]}@" if "@" in self._parts.netloc else ""
        return urlunsplit(self._parts._replace(netloc=f"{user}127.0.0.1:{self._port}", query=""))

    async def join(self) -> None:
        """Let traffic through, on the same port as before."""
        self._cut = False
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        self._cut = True
        if self._server is not None:
            self._server.close()
            self._server = None
        relays = dict(self._relays)
        for relay, writer in relays.items():
            relay.cancel()
            writer.transport.abort()  # a relay that has not begun yet would leave it open
        await asyncio.gather(*relays, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:  # it came in while the link was cut
            writer.transport.abort()
            return
        relay = asyncio.create_task(self._relay(reader, writer))
        self._relays[relay] = writer
        relay.add_done_callback(self._relays.pop)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        folder = parse_qs(self._parts.query).get("host", [""])[0]
        open_ends = [writer]
        try:
            if folder.startswith("/"):
                path = f"{folder}/.s.PGSQL.{self._parts.port or 5432}"
                there, end = await asyncio.open_unix_connection(path)
            else:
                there, end = await asyncio.open_connection(self._parts.hostname, self._parts.port or 5432)
            open_ends.append(end)
            # Either side's end is the end of both.
            ways = [asyncio.create_task(way) for way in (_pump(reader, end), _pump(there, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
        finally:
            for one in open_ends:
                one.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@pytest.fixture
async def link(database_url: str) -> AsyncIterator[Link]:
    link = Link(database_url)
    await link.join()
    yield link
    await link.cut()


@pytest.fixture
async def remote(serve: Serve, link: Link) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service that reaches its database over the link."""
    service = await serve(database_url=link.url)
    async with httpx.AsyncClient(base_url=service.url, timeout=35) as client:
        yield client
    await service.stop()


@pytest.mark.parametrize("path", ["/healthz", "/v0/health"])
async def test_health_tells_version_and_age(http: httpx.AsyncClient, path: str) -> None:
    answers = [(await http.get(path)) for _ in range(2)]
    first, second = (answer.json() for answer in answers)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert set(first) == {"status", "version", "uptime_ms"}
    assert (first["status"], first["version"]) == ("ok", __version__)
    assert 0 <= first["uptime_ms"] <= second["uptime_ms"]


@pytest.mark.parametrize("path", ["/readyz", "/v0/ready"])
async def test_ready_tells_how_many_topics_there_are(http: httpx.AsyncClient, topic: str, path: str) -> None:
    before = (await http.get(path)).json()
    assert set(before) == {"status", "wal_replay_complete", "topics"}
    assert (before["status"], before["wal_replay_complete"]) == ("ready", True)
    await Topic(http, topic).put()
    assert (await http.get(path)).json()["topics"] == before["topics"] + 1


async def test_without_its_database_a_service_runs_and_is_not_ready(
    remote: httpx.AsyncClient, link: Link, topic: str
) -> None:
    queue = Topic(remote, topic)
    await queue.put()
    await queue.add(1)
    await link.cut()

    assert (await remote.get("/healthz")).status_code == 200
    for path in ("/readyz", "/v0/ready"):
        began = time.monotonic()
        answer = await remote.get(path)
        refused(answer, 503, "not_ready")
        assert int(answer.headers["retry-after"]) >= 1
        assert time.monotonic() - began < 3
    verbs = {
        "": {"records": [{"data": 1}]},
        "/claim": {"node": "n"},
        "/ack": {"node": "n", "seqs": [1]},
        "/nack": {"node": "n", "seqs": [1]},
        "/extend": {"node": "n", "seqs": [1], "lease_ms": 1000},
    }
    for verb, body in verbs.items():
        answer = await remote.post(queue.path + verb, json=body)
        refused(answer, 503, "not_ready")
        assert answer.headers["retry-after"] == "1"
    for path in (queue.path, "/v0/topics"):
        refused(await remote.get(path), 503, "not_ready")
    refused(await remote.put(queue.path, json={"type": "queue"}), 503, "not_ready")
    refused(await remote.delete(queue.path), 503, "not_ready")

    await link.join()

    async def ready() -> bool:
        return (await remote.get("/readyz")).status_code == 200

    await eventually(ready)
    assert (await queue.take())["deliveries"] == 1


async def test_an_address_of_the_database_is_in_no_answer(remote: httpx.AsyncClient, link: Link, topic: str) -> None:
    await link.cut()
    for answer in [await remote.get("/readyz"), await remote.get(f"/v0/topics/{topic}")]:
        assert str(urlsplit(link.url).port) not in answer.text
        assert "postgres" not in answer.text.lower()
    await link.join()


async def test_a_stream_outlives_a_cut(remote: httpx.AsyncClient, link: Link, topic: str) -> None:
    """It is told to be patient, and the jobs go on when the database is back."""
    queue = Topic(remote, topic)
    await queue.put()
    async with working(queue, "w", max=2) as stream:
        await queue.add(1)
        assert (await stream.job())["$seq"] == 1
        await link.cut()
        error = await stream.error()
        assert (error["code"], error["topic"]) == (429, topic)
        await link.join()

        async def added() -> bool:
            return (await remote.post(queue.path, json={"records": [{"data": 2}]})).is_success

        await eventually(added)
        while (frame := await stream.frame()) is not None and frame.fields.get("event") != "job":
            assert frame.fields.get("event") in {None, "error"}
        assert frame is not None
        assert (await queue.ack("w", [1, frame.data["$seq"]]))["acked"] == 2
