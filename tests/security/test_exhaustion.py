"""What is much too much costs its sender, and not the service: its memory is looked at all the while."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import httpx
import psutil  # type: ignore[import-untyped]
import pytest

from tests.api.dialect import Topic, refused
from tests.api.raw import Raw, chunk, chunked, get, post, raw
from tests.launch import services

if TYPE_CHECKING:
    from pathlib import Path

# The bounds themselves are in tests/api/test_limits.py and bad_input.py, quickly.
pytestmark = [pytest.mark.alone, pytest.mark.slow]
MIB = 1024 * 1024
ROOM = 150 * MIB  # the largest body, 64 MiB, as it grows
BOMB = 1024 * MIB


class Watched(threading.Thread):
    """Looks at a process's memory until it is told to stop."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self.before = self.most = self._process.memory_info().rss

    def run(self) -> None:
        while not self._over.wait(0.002):
            self.most = max(self.most, self._process.memory_info().rss)

    def stop(self) -> int:
        """By how many bytes it has grown, at its most."""
        self._over.set()
        self.join()
        return int(self.most - self.before)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, database_url: str) -> Iterator[tuple[str, int]]:
    """The address of a service as a process, and its server's id."""
    folder: Path = tmp_path_factory.mktemp("exhaustion")
    with services(folder) as start:
        service = start(DATABASE_URL=database_url, API_KEYS="k")
        url = service.up()
        pid = service.server()
        assert pid is not None
        yield url, pid


@pytest.fixture
async def queue(running: tuple[str, int], topic: str) -> AsyncIterator[Topic]:
    async with httpx.AsyncClient(base_url=running[0], headers={"authorization": "Bearer k"}, timeout=60) as http:
        made = Topic(http, topic)
        await made.put()
        await made.append({"data": "x" * 1000})
        yield made


@pytest.fixture
def watched(running: tuple[str, int], queue: Topic) -> Iterator[Watched]:
    watched = Watched(running[1])
    watched.start()
    yield watched
    assert watched.stop() <= ROOM


@pytest.fixture
async def client(running: tuple[str, int], watched: Watched) -> AsyncIterator[Raw]:
    async with raw(running[0]) as one:
        yield one


async def stream(client: Raw, piece: bytes, count: int) -> int:
    """Send a piece again and again until the service has had enough: how many were sent."""
    for sent in range(count):
        with contextlib.suppress(ConnectionError):
            await client.send(piece)
        await asyncio.sleep(0)  # what was answered comes in meanwhile
        if client.reader.at_eof() or client.writer.transport.is_closing() or client.reader._buffer:  # type: ignore[attr-defined]
            return sent
    return count


async def alive(queue: Topic) -> None:
    """It serves, and holds what it held."""
    assert (await queue.state())["count"] == 1


async def test_a_gibibyte_that_is_announced_is_refused_before_it_comes(client: Raw, queue: Topic) -> None:
    answer = await client.ask(post(queue.path, b"", key="k", declared=BOMB))
    assert (answer.status, answer.error["code"]) == (413, "payload_too_large")
    await alive(queue)


async def test_a_gibibyte_in_chunks_is_cut_off(client: Raw, queue: Topic) -> None:
    await client.send(chunked(queue.path, key="k"))
    sent = await stream(client, chunk(b" " * MIB), BOMB // MIB)
    assert sent < 200, "it took more than three bodies"
    assert (await client.answer()).status == 413
    await alive(queue)


async def test_what_is_compressed_stays_so(client: Raw, queue: Topic) -> None:
    """256 MiB in 256 KiB: no body is unpacked, whatever it says it is."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join([packer.compress(b" " * MIB) for _ in range(256)]) + packer.flush()
    assert len(bomb) < MIB
    for encoding in ("gzip", "deflate", "br", "gzip, gzip"):
        headers = {"content-type": "application/json", "content-encoding": encoding}
        refused(await queue.http.post(queue.path, content=bomb, headers=headers), 415, "unsupported_media_type")
    await alive(queue)


async def test_a_header_of_20_mb_is_cut_off(client: Raw, queue: Topic) -> None:
    await client.send(b"GET /healthz HTTP/1.1\r\nhost: t\r\nx: ")
    sent = await stream(client, b"v" * 64 * 1024, 320)
    assert sent < 320, "all of it"
    assert (await client.answer()).status == 431
    await alive(queue)


async def test_a_megabyte_of_token_is_no_token(running: tuple[str, int], watched: Watched, queue: Topic) -> None:
    async with raw(running[0]) as one:
        answer = await one.ask(get("/v0/topics", f"authorization: Bearer {'x' * MIB}"))
        assert answer.status == 431
    await alive(queue)


async def test_what_is_nested_without_end_is_refused(queue: Topic, watched: Watched) -> None:
    depth = 1_000_000
    for path in ("", "/claim", "/requeue"):
        for body in (b"[" * depth, b'{"records":[{"data":' + b"[" * depth + b"]" * depth + b"}]}", b'{"a":' * depth):
            kind = {"content-type": "application/json"}
            answer = await queue.http.post(queue.path + path, content=body, headers=kind)
            assert answer.status_code == 400, answer.text[:300]
    await alive(queue)


async def test_a_million_of_everything_is_refused(queue: Topic, watched: Watched) -> None:
    """Records, seqs, pages and topics: the message says how many there may be."""
    http = queue.http
    many = [
        await http.post(queue.path, json={"records": [{"data": 0}] * 1_000_000}),
        await http.post(f"{queue.path}/ack", json={"node": "n", "seqs": list(range(1_000_000))}),
        await http.post("/api/messages/ack", json={"ids": ["x"] * 1_000_000}),
        await http.post("/v0/watch", json={"topics": {f"t{n}": {} for n in range(100_000)}}),
    ]
    assert [answer.status_code for answer in many] == [400, 400, 400, 400], [answer.text[:200] for answer in many]
    page = await http.get("/v0/topics", params={"page_size": str(10**9)})
    assert page.status_code == 200
    assert len(page.json()["topics"]) <= 1_000
    await alive(queue)


async def test_what_a_stream_delivered_is_not_kept(running: tuple[str, int], queue: Topic, watched: Watched) -> None:
    """320 MiB of jobs, on forty streams that hold them."""
    async with contextlib.AsyncExitStack() as streams:
        for number in range(40):
            await queue.append(*[{"data": "x" * 1_000_000}] * 8, config={"type": "queue"})
            stream = await streams.enter_async_context(raw(running[0]))
            await stream.send(get(f"{queue.path}/work?node=n{number}&max=8", key="k"))
            came = 0
            while came < 7_000_000:
                came += len(await stream.reader.read(MIB))
        await queue.until_counts(1, 320)
