"""Does the process run, and can it work: with its database, and cut off from it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit, urlunsplit

import httpx
import pytest

from app import __version__
from tests.api.dialect import Body, Topic, eventually, refused
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


async def test_health_and_readiness_are_told(http: httpx.AsyncClient, topic: str) -> None:
    for path in ("/healthz", "/v0/health"):
        first, second = [(await http.get(path)).json() for _ in range(2)]
        assert (first["status"], first["version"]) == ("ok", __version__)
        assert 0 <= first["uptime_ms"] <= second["uptime_ms"]
    before = [(await http.get(path)).json() for path in ("/readyz", "/v0/ready")]
    await Topic(http, topic).put()
    for path, told in zip(("/readyz", "/v0/ready"), before, strict=True):
        assert (told["status"], told["wal_replay_complete"]) == ("ready", True)
        assert (await http.get(path)).json()["topics"] == told["topics"] + 1


async def test_without_its_database_a_service_runs_and_is_not_ready(
    remote: httpx.AsyncClient, link: Link, topic: str
) -> None:
    queue = Topic(remote, topic)
    await queue.put()
    await queue.add(1)
    await link.cut()

    assert (await remote.get("/healthz")).status_code == 200
    settles = {"node": "n", "seqs": [1]}
    verbs: list[tuple[str, str, Body | None]] = [
        *(("GET", path, None) for path in ("/readyz", "/v0/ready", "/v0/topics", queue.path)),
        *(("PUT", queue.path, {"type": "queue"}), ("DELETE", queue.path, None)),
        *(("POST", queue.path, {"records": [{"data": 1}]}), ("POST", f"{queue.path}/claim", {"node": "n"})),
        *(("POST", f"{queue.path}/{verb}", settles) for verb in ("ack", "nack")),
        ("POST", f"{queue.path}/extend", settles | {"lease_ms": 1000}),
    ]
    for method, path, body in verbs:
        answer = await remote.request(method, path, json=body)
        refused(answer, 503, "not_ready")
        assert int(answer.headers["retry-after"]) >= 1
        # An address of the database is in no answer.
        assert str(urlsplit(link.url).port) not in answer.text
        assert "postgres" not in answer.text.lower()

    await link.join()

    async def ready() -> bool:
        return (await remote.get("/readyz")).status_code == 200

    await eventually(ready)
    assert (await queue.take())["deliveries"] == 1


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
