"""What the harness itself does: its proxies, its plan and its file."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pytest

from tools.chaos import record
from tools.chaos.faults import FAULTS
from tools.chaos.nemesis import plan
from tools.chaos.proxy import Proxy
from tools.chaos.record import Recorder, answered_of, asked_of, payload
from tools.history.history import NEVER, Burial, Claim, Outage, Outcome, Topic


@dataclass
class Echo:
    """A server that says what it is told, and remembers it; and a proxy before it."""

    proxy: Proxy
    heard: list[bytes] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            self.heard.append(data)
            writer.write(data)
        writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.proxy.port)


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo(Proxy("test", random.Random(1)))
    server = await asyncio.start_server(echo.answer, "127.0.0.1", 0)
    await echo.proxy.open(server.sockets[0].getsockname()[1])
    yield echo
    await echo.proxy.close()
    server.close()


async def test_a_reply_is_lost_after_the_request_has_gone_through(echo: Echo) -> None:
    reader, writer = await echo.connect()
    writer.write(b"kept")
    assert await reader.readexactly(4) == b"kept"
    with echo.proxy.swallowing(1.0):
        writer.write(b"lost")
        assert await reader.read(100) == b"", "its end"
    assert echo.heard == [b"kept", b"lost"]
    assert echo.proxy.swallowed == 1


async def test_who_is_clogged_is_not_told_that_nobody_listens_there() -> None:
    """A machine that is away says nothing; one that is there and has no server says so."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    proxy = Proxy("test", random.Random(1))
    await proxy.open(port)
    with proxy.clogged():
        reader, _ = await asyncio.open_connection("127.0.0.1", proxy.port)
        said = asyncio.ensure_future(reader.read(100))
        done, _ = await asyncio.wait([said], timeout=0.2)
        assert done == set()
    with contextlib.suppress(ConnectionResetError):
        assert await said == b"", "its end"
    await proxy.close()


async def test_what_is_clogged_goes_on_later_in_order(echo: Echo) -> None:
    reader, writer = await echo.connect()
    with echo.proxy.clogged():
        late_reader, late_writer = await echo.connect()
        for text in (b"a", b"b"):
            writer.write(text)
            await asyncio.sleep(0.05)
        late_writer.write(b"c")
        await asyncio.sleep(0.05)
        assert echo.heard == []
    assert await reader.readexactly(2) == b"ab"
    assert await late_reader.readexactly(1) == b"c"


async def test_what_a_clogged_link_held_is_lost_when_it_is_cut(echo: Echo) -> None:
    reader, writer = await echo.connect()
    with echo.proxy.clogged():
        writer.write(b"a")
        await asyncio.sleep(0.05)
        echo.proxy.cut()
        assert await reader.read(100) == b"", "its end"
    assert echo.heard == []


async def test_slow_links_keep_the_order(echo: Echo) -> None:
    reader, writer = await echo.connect()
    with echo.proxy.delaying(0.02):
        for number in range(30):
            writer.write(b"%d " % number)
            await asyncio.sleep(0.002)
        expected = b"".join(b"%d " % number for number in range(30))
        assert await reader.readexactly(len(expected)) == expected


def test_a_seed_decides_what_comes() -> None:
    kinds = list(FAULTS)
    first, second = ([*islice(plan("7", kinds), 100)] for _ in range(2))
    assert first == second != [*islice(plan("8", kinds), 100)]
    assert {len(slot.kinds) for slot in first} == {1, 2}
    assert {kind for slot in first[: len(kinds)] for kind in slot.kinds} == set(kinds), "each comes in its turn"
    assert all(len(set(slot.kinds)) == len(slot.kinds) for slot in first)


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "one")
    recorder.note(Topic("t", max_deliveries=3))
    recorder.note(Outage(1.0, 3.0, "kill_api", 2.0))
    recorder.note(Burial(1, 10, "t"))
    asked = {"records": [{"data": payload(1), "group": "g", "dedupe_id": "1"}]}
    op = recorder.invoke("", "t", **asked_of("", asked))
    recorder.end(op, Outcome.DONE, **answered_of("", {"seqs": [10]}))
    op = recorder.invoke("claim", "t", **asked_of("claim", {"lease_ms": 1000, "max": 2}))
    job = {"$seq": 10, "lease_id": "l", "deliveries": 1, "deadline": 5000, "data": payload(1)}
    recorder.end(op, Outcome.DONE, **answered_of("claim", {"claimed": [job]}))
    recorder.invoke("claim", "t", **asked_of("claim", {"lease_ms": 1000, "max": 2}))  # its process is killed
    held = {"seqs": [10, 11, 10], "lease_ids": ["l", "m", "n"]}
    op = recorder.invoke("ack", "t", **asked_of("ack", held))
    recorder.end(op, Outcome.DONE, **answered_of("ack", {"skipped": [10, 11]}))
    recorder.close()
    with (tmp_path / "one.jsonl").open("a") as file:
        file.write('{"op": "one-9", "kind": "inv')  # and so is this line
    history = record.read(tmp_path)
    assert history.topics == [Topic("t", max_deliveries=3)]
    assert history.outages == [Outage(1.0, 3.0, "kill_api", 2.0)]
    assert history.burials == [Burial(1, 10, "t")]
    [enqueue] = history.enqueues
    assert (enqueue.ids, enqueue.seqs, enqueue.unique, enqueue.groups) == ((1,), (10,), True, ("g",))
    [done, doubt] = history.claims
    assert done.short
    assert doubt == Claim(doubt.sent, NEVER, Outcome.IN_DOUBT, "t")
    [delivery] = history.deliveries
    assert (delivery.id, delivery.seq, delivery.claimed, delivery.intact) == (1, 10, 4000, True)
    outcomes = {one.lease: one.outcome for one in history.settlements}
    assert outcomes == {"l": Outcome.IN_DOUBT, "m": Outcome.REFUSED, "n": Outcome.IN_DOUBT}
