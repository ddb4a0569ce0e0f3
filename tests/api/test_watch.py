"""Watches: what a client is told of several topics on one stream."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from app.base.metrics import catalogue
from tests.api.dialect import JSON, Body, Topic, eventually, refused
from tests.api.events import HEARTBEAT
from tests.api.watches import event_id, made, position, watching

if TYPE_CHECKING:
    from tests.conftest import Running
    from tests.queue.calls import Session


@pytest.fixture
async def log(http: httpx.AsyncClient, topic: str) -> Topic:
    """A log with every default."""
    log = Topic(http, topic)
    await log.put(type="log")
    return log


@pytest.fixture
async def other(http: httpx.AsyncClient, topic: str) -> Topic:
    log = Topic(http, f"{topic}.other")
    await log.put(type="log")
    return log


async def parked(service: Running, topic: Topic, readers: int = 1) -> None:
    """Wait until so many readers have everything."""

    async def fact() -> bool:
        return service.context.engine.readers.waiting_for(topic.name) == readers

    await eventually(fact)


async def sizes(log: Topic, frames: int, **options: object) -> list[int]:
    """How many records the first frames of a watch have."""
    async with watching(log.http, await made(log.http, log, **options)) as stream:
        return [len((await stream.event("record")).data["records"]) for _ in range(frames)]


async def test_a_watch_says_where_it_begins(log: Topic, other: Topic) -> None:
    await log.append(*({"data": i} for i in range(5)))
    await log.post("delete", before_seq=3)
    watch = await made(log.http, topics={log.name: {"from_seq": 3}, other.name: None})
    assert re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", watch["wid"])
    assert watch["topics"] == {
        log.name: {"from_seq": 3, "head_seq": 5, "earliest_seq": 3},
        other.name: {"from_seq": 0, "head_seq": 0, "earliest_seq": 1},
    }
    tail = await made(log.http, topics={log.name: {"tail": True}})
    assert tail["topics"][log.name]["from_seq"] == 5
    await log.append({"data": "new"})
    async with watching(log.http, tail) as stream:
        assert await stream.records(1) == ["new"]
    async with watching(log.http, await made(log.http, log)) as stream:  # what was deleted is not told
        assert await stream.records(4) == [2, 3, 4, "new"]


async def test_records_come_in_order_and_then_as_they_are_written(log: Topic) -> None:
    await log.append({"data": {"a": [1]}, "meta": {"m": 1}, "tag": "t", "node": "p"}, {"data": "two"})
    async with watching(log.http, await made(log.http, log)) as stream:
        assert stream.headers["x-accel-buffering"] == "no"
        frame = await stream.frame()
        assert frame is not None
        assert frame.text == HEARTBEAT
        frame = await stream.event("record")
        assert list(frame.fields) == ["id", "event", "data"]
        assert position(frame) == {log.name: 2}
        told = frame.data
        records = told.pop("records")
        assert told == {"topic": log.name, "from_seq": 0, "to_seq": 2, "head_seq": 2}
        assert [record.pop("$ts") > 0 for record in records] == [True, True]
        assert records == [{"$seq": 1, "$node": "p", "data": {"a": [1]}, "meta": {"m": 1}}, {"$seq": 2, "data": "two"}]
        caught_up = await stream.event("caught-up")
        assert (caught_up.data, position(caught_up)) == ({"topic": log.name, "head_seq": 2}, {log.name: 2})
        await log.append({"data": 3})
        frame = await stream.event("record")
        assert (frame.data["from_seq"], frame.data["to_seq"]) == (2, 3)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n\r\n"], ids=["LF", "CR", "two"])
async def test_line_ends_between_tokens_of_json_break_no_frame(log: Topic, end: bytes) -> None:
    await log.http.post(log.path, content=b'{"records":[{"data":{%b"a":%b1}}]}' % (end, end), headers=JSON)
    async with watching(log.http, await made(log.http, log)) as stream:
        frame = await stream.event("record")
        assert set(frame.fields) == {"id", "event", "data"}
        assert frame.data["records"][0]["data"] == {"a": 1}


async def test_caught_up_is_told_once_for_each_time_of_catching_up(log: Topic, service: Running) -> None:
    async with watching(log.http, await made(log.http, log, limit=2)) as stream:
        assert (await stream.event("caught-up")).data["head_seq"] == 0
        for i in range(3):  # a reader that keeps up is not told so again
            await log.append({"data": i})
            assert (await stream.event("record")).data["to_seq"] == i + 1
        await parked(service, log)
        await log.append(*({"data": i} for i in range(5)))  # three batches: it fell behind
        assert [(await stream.event("record")).data["to_seq"] for _ in range(3)] == [5, 7, 8]
        assert (await stream.event("caught-up")).data["head_seq"] == 8


async def test_several_topics_come_on_one_stream(log: Topic, other: Topic) -> None:
    await log.append({"data": 1})
    async with watching(log.http, await made(log.http, log, other)) as stream:
        first = [await stream.next() for _ in range(3)]
        assert sorted((frame.fields["event"], frame.data["topic"]) for frame in first) == [
            ("caught-up", log.name),
            ("caught-up", other.name),
            ("record", log.name),
        ]
        await other.append({"data": 2})
        frame = await stream.event("record")
        assert (frame.data["topic"], position(frame)) == (other.name, {log.name: 1, other.name: 1})


async def test_limits_bound_a_frame(log: Topic) -> None:
    await log.append(*({"data": "x" * 1_000} for _ in range(7)))
    assert await sizes(log, 3, limit=3) == [3, 3, 1]
    assert await sizes(log, 4, max_batch_bytes=2_500) == [2, 2, 2, 1]
    assert await sizes(log, 7, max_batch_bytes=1) == [1] * 7
    await log.append(*({"data": i} for i in range(293)))
    assert await sizes(log, 2) == await sizes(log, 2, limit=0) == [256, 44]
    await log.post("delete", before_seq=301)
    await log.append(*({"data": "x" * 130_000} for _ in range(3)))
    assert await sizes(log, 2) == await sizes(log, 2, max_batch_bytes=0) == [2, 1]


async def test_a_watch_shows_what_it_asked_for(log: Topic, connect: Callable[[], Awaitable[Session]]) -> None:
    await log.append({"data": 1, "tag": "a", "meta": {"k": 1}}, {"data": 2})
    asked: list[tuple[Body, list[set[str]]]] = [
        ({"consistency": "strong"}, [{"data", "meta"}, {"data"}]),  # which changes nothing
        ({"include_tags": True}, [{"data", "$tag", "meta"}, {"data"}]),
        ({"include_meta": False}, [{"data"}, {"data"}]),
        ({"include_data": False}, [{"meta"}, set()]),
    ]
    for fields, shown in asked:
        async with watching(log.http, await made(log.http, log, **fields)) as stream:
            assert [set(record) - {"$seq", "$ts"} for record in (await stream.event("record")).data["records"]] == shown
    db = await connect()
    for beats, kept in ((None, 15_000), (0, 1_000), (1_001, 1_001), (60_000, 60_000), (60_001, 60_000)):
        watch = await made(log.http, log, heartbeat_ms=beats)
        options = await db.fetchval("SELECT options FROM holdfast.watches WHERE wid = $1", watch["wid"])
        assert json.loads(options)["heartbeat_ms"] == kept


@pytest.mark.parametrize("node", ["a", ["a", "c"]])
async def test_a_watch_leaves_out_its_own_records(log: Topic, node: object) -> None:
    watch = await made(log.http, log, node=node)
    for i, who in enumerate(["a", "b", None, "a"]):
        await log.append({"data": i, "node": who})
    async with watching(log.http, watch) as stream:
        assert await stream.records(2) == [1, 2]
        await log.append({"data": 4, "node": "a"})
        await log.append({"data": 5, "node": "b"})
        assert await stream.records(1) == [5]
    await log.put(type="log", dedupe_node=False)
    async with watching(log.http, await made(log.http, log, node=node)) as stream:
        assert await stream.records(6) == [0, 1, 2, 3, 4, 5]


async def test_what_was_lost_is_told_before_what_is_left(log: Topic) -> None:
    await log.put(type="log", cap_records=2)
    await log.append({"data": 0})
    watch = await made(log.http, log)
    async with watching(log.http, watch) as stream:
        assert await stream.records(1) == [0]
        await stream.event("caught-up")
    for i in range(1, 6):
        await log.append({"data": i})
    async with watching(log.http, watch) as stream:
        lost = await stream.event("tombstone")
        seqs = {"gap_from": 2, "gap_to": 4, "earliest_seq": 5, "head_seq": 6}
        assert lost.data == {"topic": log.name, "reason": "cap", "missed_estimate": 3, **seqs}
        assert position(lost) == {log.name: 4}
        assert (await stream.event("record")).data["from_seq"] == 1
        assert (await stream.event("caught-up")).data["head_seq"] == 6
    async with watching(log.http, watch, event_id(**{log.name: 4})) as stream:  # of a client that broke off there
        assert await stream.records(2) == [4, 5]
    for beginning, reason in ((1, "from_seq_too_old"), (99, "recreated")):
        async with watching(log.http, await made(log.http, topics={log.name: {"from_seq": beginning}})) as stream:
            assert (await stream.event("tombstone")).data["reason"] == reason
            assert await stream.records(2) == [4, 5]


async def test_a_queues_tombstone_leaves_out_no_job_that_stays(queue: Topic) -> None:
    """Of a queue, what stays lies among what is lost: its cursor goes no further than the first job that comes."""
    await queue.put(cap_records=2, discard="old")
    await queue.append({"data": 0})
    await queue.take()  # is never evicted
    watch = await made(queue.http, queue)
    await queue.append({"data": 1})
    await queue.append({"data": 2})
    async with watching(queue.http, watch) as stream:
        lost = await stream.event("tombstone")
        assert (lost.data["gap_to"], position(lost)) == (2, {queue.name: 0})
        assert await stream.records(2) == [0, 2]


async def test_the_end_of_a_topic_is_the_end_of_that_topic_only(log: Topic, other: Topic) -> None:
    async with watching(log.http, await made(log.http, log, other)) as stream:
        for _ in range(2):
            await stream.event("caught-up")
        await log.append({"data": 1})
        await stream.event("record")
        await log.drop()
        frame = await stream.event("topic-deleted")
        assert frame.data == {"topic": log.name, "head_seq": 1, "reason": "deleted"}
        assert position(frame) == {other.name: 0}
        await log.put(type="log")
        for i in range(2):
            await log.append({"data": "of another log"})
            await other.append({"data": i})
            assert await stream.records(1, other) == [i]


async def test_a_topic_made_anew_while_nobody_watched_was_deleted(log: Topic, other: Topic) -> None:
    watch = await made(log.http, log, other)
    await log.drop()
    await log.put(type="log")
    async with watching(log.http, watch) as stream:
        events = [await stream.next() for _ in range(2)]
        assert sorted((frame.fields["event"], frame.data["topic"]) for frame in events) == [
            ("caught-up", other.name),
            ("topic-deleted", log.name),
        ]
    async with watching(log.http, watch) as stream:  # and is not told again
        assert (await stream.event("caught-up")).data["topic"] == other.name
        await other.append({"data": 1})
        assert await stream.records(1, other) == [1]


async def test_a_queue_is_watched_and_nothing_is_claimed(queue: Topic) -> None:
    await queue.append({"data": 0}, {"data": 1, "delay_ms": 60_000}, {"data": 2})
    leased = await queue.take()
    async with watching(queue.http, await made(queue.http, queue)) as stream:
        assert await stream.records(3) == [0, 1, 2]
        assert await queue.counts() == (1, 1)
        await queue.append({"data": 3})
        assert await stream.records(1) == [3]
    assert (await queue.ack("n", [leased["$seq"]]))["acked"] == 1
    async with watching(queue.http, await made(queue.http, queue)) as stream:
        assert await stream.records(3) == [1, 2, 3]


async def test_of_what_is_not_there_there_is_no_watch_but_a_lenient_one(log: Topic) -> None:
    topics: Body = {log.name: {}, **{f"{log.name}.{i}": {} for i in range(255)}}  # the most there may be
    error = refused(await log.http.post("/v0/watch", json={"topics": topics}), 404, "topic_not_found")
    assert error["detail"] == {"topic": f"{log.name}.0"}
    watch = (await log.http.post("/v0/watch?lenient=true", json={"topics": topics})).json()
    assert list(watch["topics"]) == [log.name]
    await log.append({"data": 1})
    async with watching(log.http, watch) as stream:
        assert await stream.records(1) == [1]


async def test_what_can_not_be_is_refused(log: Topic) -> None:
    for wid in ("wid_", "nonsense", "wid_AAAAAAAAAAAAAAAAAAAAAA", "wid_%00%00"):
        refused(await log.http.get(f"/v0/watch/{wid}"), 404, "not_found")
    watch = await made(log.http, log)
    for last in ("e30x", "W10", "eyJhIjotMX0", "eyJhIjp0cnVlfQ", "eyJhIjoiMSJ9", "ü"):  # ids that no event had
        answer = await log.http.get(watch["stream_url"], headers={b"last-event-id": last.encode()})
        refused(answer, 400, "invalid_request")


async def test_one_write_reaches_all_who_watch_with_one_read(log: Topic, service: Running) -> None:
    statements = service.context.engine.metrics.histogram(catalogue.STATEMENT_SECONDS, "logs/read_records")
    watches = [await made(log.http, log) for _ in range(20)]
    async with httpx.AsyncClient(base_url=service.url, timeout=35) as http:
        streams = [watching(http, watch) for watch in watches]
        opened = await asyncio.gather(*(stream.__aenter__() for stream in streams))
        await asyncio.gather(*(stream.event("caught-up") for stream in opened))
        await parked(service, log, 20)
        before = sum(statements.counts)
        await log.append({"data": 1})
        assert await asyncio.gather(*(stream.records(1) for stream in opened)) == [[1]] * 20
        assert sum(statements.counts) - before == 1
        for stream in streams:
            await stream.__aexit__(None, None, None)
    await parked(service, log, 0)  # who leaves is forgotten
