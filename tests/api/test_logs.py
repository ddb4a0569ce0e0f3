"""Log topics over HTTP: what is appended is read behind a cursor, in order, byte for byte."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from app.features.logs import v0 as diffs
from tests.api.dialect import JSON, Body, Topic, accepted, eventually, refused
from tests.api.keyring import client

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running


@pytest.fixture
async def log(http: httpx.AsyncClient, topic: str) -> Topic:
    """A log with every default. `put` gives it other settings."""
    made = Topic(http, topic)
    await made.put(type="log")
    return made


def data(answer: Body) -> list[object]:
    return [record["data"] for record in answer["records"]]


async def test_what_is_appended_is_read_in_order(log: Topic) -> None:
    empty = await log.state()
    assert (empty["head_seq"], empty["earliest_seq"], empty["next_seq"]) == (0, 1, 1)
    assert (empty["count"], empty["bytes"], empty["last_write_ts"]) == (0, 0, None)
    first = await log.append({"data": {"a": [1, None]}}, {"data": "two"})
    assert (first["first_seq"], first["last_seq"], first["seqs"], first["head_seq"]) == (1, 2, [1, 2], 2)
    assert (first["count"], first["created"], first["deduped"]) == (2, False, False)
    assert (await log.append({"data": 3}))["seqs"] == [3]
    read = await log.post("diff")
    assert data(read) == [{"a": [1, None]}, "two", 3]
    assert [record["$seq"] for record in read["records"]] == [1, 2, 3]
    assert set(read["records"][0]) == {"$seq", "$ts", "data"}
    assert (read["next_from_seq"], read["head_seq"], read["earliest_seq"]) == (3, 3, 1)
    assert (read["caught_up"], read["tombstone"], read["lag"]) == (True, None, 0)
    assert read["performance"]["records_scanned"] == 3
    state = await log.state()
    assert (state["head_seq"], state["earliest_seq"], state["count"], state["bytes"]) == (3, 1, 3, 14 + 5 + 1)
    assert state["last_write_ts"] == read["records"][-1]["$ts"]
    assert "queue" not in state
    [listed] = accepted(await log.http.get("/v0/topics", params={"prefix": log.name}))["topics"]
    assert (listed["topic"], listed["count"], listed["bytes"], listed["head_seq"]) == (log.name, 3, 20, 3)


async def test_payloads_come_back_byte_for_byte(log: Topic) -> None:
    odd = b'{"z" : 1.50,  "a":"\\u00e9\\/", "n": 1E400}'
    body = b'{"records":[{"data":%b,"meta":{ "k" :1.0}}]}' % odd
    accepted(await log.http.post(log.path, content=body, headers=JSON))
    answer = await log.http.post(f"{log.path}/diff")
    assert b'"data":%b,"meta":{ "k" :1.0}}' % odd in answer.content


async def test_a_cursor_walks_through_by_limits_that_are_clamped(log: Topic) -> None:
    await log.append(*({"data": i, "tag": "t", "meta": {"m": i}} for i in range(1_100)))
    read = accepted(await log.http.post(f"{log.path}/diff"))
    assert len(read["records"]) == 256
    assert (read["caught_up"], read["lag"], read["next_from_seq"]) == (False, 1_100 - 256, 256)
    assert set(read["records"][0]) == {"$seq", "$ts", "data", "meta"}
    for limit, shown in ((0, 256), (1, 1), (1_000, 1_000), (5_000, 1_000)):
        read = await log.post("diff", limit=limit)
        assert (len(read["records"]), read["next_from_seq"]) == (shown, shown)
    last = await log.post("diff", from_seq=read["next_from_seq"], limit=1_000)
    assert data(read) + data(last) == list(range(1_100))
    assert last["caught_up"]


async def test_tags_meta_and_nodes_are_shown_as_asked(log: Topic) -> None:
    await log.append({"data": 1, "tag": "a", "node": "own", "meta": {"k": 1}}, {"data": 2}, node="batch")
    full = (await log.post("diff", include_tags=True))["records"]
    assert [record.get("$tag") for record in full] == ["a", None]
    assert [record["$node"] for record in full] == ["own", "batch"]
    assert "meta" not in full[1]
    plain = (await log.post("diff", include_meta=False))["records"]
    assert "meta" not in plain[0]
    assert "$tag" not in plain[0]


async def test_a_reader_leaves_out_its_own_records_and_gets_on(log: Topic) -> None:
    for i, who in enumerate(["a", "b", "A", None, "a", "a"]):
        await log.append({"data": i, "node": who})
    nodes: tuple[object, ...] = ("a", ["a"], ["a", "c"])
    for node in nodes:
        read = await log.post("diff", node=node)
        assert data(read) == [1, 2, 3]
        assert (read["next_from_seq"], read["caught_up"], read["performance"]["records_scanned"]) == (6, True, 6)
    await log.put(type="log", dedupe_node=False)
    assert data(await log.post("diff", node="a")) == [0, 1, 2, 3, 4, 5]


async def test_bytes_bound_a_batch_but_one_record_always_comes(log: Topic) -> None:
    await log.append({"data": "x" * 5_000}, {"data": "y" * 500}, {"data": "z" * 500}, {"data": "w" * 500})
    first = await log.post("diff", max_batch_bytes=100)
    assert (len(first["records"]), first["next_from_seq"], first["caught_up"]) == (1, 1, False)
    second = await log.post("diff", from_seq=1, max_batch_bytes=1_100)
    assert (len(second["records"]), second["next_from_seq"]) == (2, 3)


async def test_a_batch_is_a_mebibyte_unless_asked_otherwise(log: Topic) -> None:
    for _ in range(10):
        await log.append({"data": "x" * 1_000_000})
    for asked, count in (({}, 1), ({"max_batch_bytes": 0}, 1), ({"max_batch_bytes": 4_100_000}, 4)):
        assert len((await log.post("diff", **asked))["records"]) == count
    assert len((await log.post("diff", max_batch_bytes=2**40))["records"]) == 8


async def test_a_log_ignores_what_only_jobs_have(log: Topic) -> None:
    odd: Body = {
        "data": 1,
        "tenant": "t",
        "group": 5,
        "key": [1],
        "priority": 99,
        "delay_ms": "soon",
        "run_at": "never",
    }
    assert (await log.append(odd, disable_backpressure=True))["count"] == 1
    assert data(await log.post("diff")) == [1]


async def test_a_write_makes_a_log_by_default(http: httpx.AsyncClient, topic: str) -> None:
    made = await http.post(f"/v0/topics/{topic}", json={"records": [{"data": 1, "key": "k"}]})
    assert made.status_code == 201
    assert accepted(made)["created"] is True
    state = await Topic(http, topic).state()
    assert (state["type"], state["config"]["durability"]) == ("log", "disk")
    again = await http.post(f"/v0/topics/{topic}", json={"records": [{"data": 2}], "config": {"type": "queue"}})
    assert (again.status_code, accepted(again)["created"]) == (200, False)
    body = {"records": [{"data": 1}], "config": {"cap_records": 5, "auto_create": False}, "create": True}
    assert (await http.post(f"/v0/topics/{topic}.other", json=body)).status_code == 201
    assert (await Topic(http, f"{topic}.other").state())["config"]["cap_records"] == 5


async def test_many_first_writes_make_one_topic(http: httpx.AsyncClient, topic: str) -> None:
    answers = await asyncio.gather(
        *(http.post(f"/v0/topics/{topic}", json={"records": [{"data": i}]}) for i in range(12))
    )
    assert sorted(answer.status_code for answer in answers) == [200] * 11 + [201]
    assert sorted(accepted(answer)["first_seq"] for answer in answers) == list(range(1, 13))


async def test_a_key_that_may_not_administer_makes_no_topic_to_its_own_taste(serve: Serve, topic: str) -> None:
    async with client(await serve(api_keys="w:write"), "w") as http:
        path, plain = f"/v0/topics/{topic}", {"records": [{"data": 1}]}
        refused(await http.post(path, json={**plain, "config": {"cap_records": 1}}), 403, "forbidden")
        assert (await http.post(path, json=plain)).status_code == 201


async def test_a_log_is_deleted_with_all_that_it_holds(log: Topic) -> None:
    """And a reader of the one before is told."""
    await log.append({"data": 1}, {"data": 2}, idempotency_key="k")
    refused(await log.http.delete(f"{log.path}?if_empty=true"), 409, "topic_not_empty")
    await log.post("delete", before_seq=3)
    accepted(await log.http.delete(f"{log.path}?if_empty=true"))
    refused(await log.http.post(f"{log.path}/diff"), 404, "topic_not_found")
    await log.put(type="log")
    answer = await log.append({"data": "new"}, idempotency_key="k")
    assert (answer["seqs"], answer["deduped"]) == ([1], False)
    read = await log.post("diff", from_seq=2)
    assert read["tombstone"]["reason"] == "recreated"
    assert (data(read), read["next_from_seq"], read["caught_up"]) == (["new"], 1, True)


async def until_read(service: Running, topic: str, readers: int = 1) -> None:
    async def fact() -> bool:
        return service.context.engine.readers.waiting_for(topic) == readers

    await eventually(fact)


async def test_a_wait_ends_with_the_next_record(log: Topic, service: Running, serve: Serve) -> None:
    """For all who wait, in any process; for whom it is their own, without it."""
    other = await serve()
    async with client(other) as http:
        elsewhere = asyncio.create_task(log.through(http).post("diff", wait_ms=30_000))
        own = asyncio.create_task(log.post("diff", wait_ms=30_000, node="me"))
        waiting = [asyncio.create_task(log.post("diff", wait_ms=30_000)) for _ in range(4)]
        await until_read(service, log.name, 5)
        await until_read(other, log.name)
        await log.append({"data": 1}, node="me")
        assert [data(read) for read in await asyncio.gather(*waiting, elsewhere)] == [[1]] * 5
        assert ((await own)["records"], (await own)["next_from_seq"]) == ([], 1)


async def test_a_wait_ends_with_nothing(log: Topic, service: Running, serve: Serve) -> None:
    """At its time, when the reader leaves, when the service stops, and when the topic is deleted."""
    began = time.monotonic()
    read = await log.post("diff", wait_ms=200)
    assert time.monotonic() - began >= 0.2
    assert (read["records"], read["caught_up"]) == ([], True)

    leaving = asyncio.create_task(log.post("diff", wait_ms=30_000))
    await until_read(service, log.name)
    leaving.cancel()
    await until_read(service, log.name, 0)

    other = await serve()
    async with client(other) as http:
        waiting = asyncio.create_task(log.through(http).post("diff", wait_ms=30_000))
        await until_read(other, log.name)
        await other.stop()
        assert (await waiting)["records"] == []

    refusal = asyncio.create_task(log.http.post(f"{log.path}/diff", json={"wait_ms": 30_000}))
    await until_read(service, log.name)
    await log.drop()
    refused(await refusal, 404, "topic_not_found")


async def test_a_queue_is_read_without_claiming(queue: Topic, service: Running) -> None:
    await queue.append(
        {"data": 0, "tag": "a", "node": "p"}, {"data": 1, "delay_ms": 60_000}, {"data": 2, "meta": {"k": 1}}
    )
    job = await queue.take()
    await queue.ack("n", [job["$seq"]])
    leased = await queue.take()
    read = await queue.post("diff", include_tags=True)
    assert data(read) == [1, 2]
    assert (read["next_from_seq"], read["head_seq"], read["earliest_seq"]) == (3, 3, 2)
    assert (read["caught_up"], read["tombstone"]) == (True, None)
    assert await queue.counts() == (0, 1)
    assert leased["$seq"] in [record["$seq"] for record in read["records"]]
    waiting = asyncio.create_task(queue.post("diff", from_seq=3, wait_ms=20_000))
    await until_read(service, queue.name)
    await queue.append({"data": 3})
    assert data(await waiting) == [3]


async def test_the_bounds_themselves_are_allowed(log: Topic) -> None:
    many, wide = {f"k{i}": i for i in range(64)}, {"k": "x" * (16 * 1024 - 8)}
    big = "x" * (1024 * 1024 - 2)
    await log.append({"data": 1, "tag": "ü" * 128, "node": "n" * 128, "meta": many}, {"data": 2, "meta": wide})
    await log.append({"data": big})
    read = (await log.post("diff", include_tags=True, max_batch_bytes=8 * 1024 * 1024))["records"]
    assert (read[0]["$tag"], read[0]["$node"], read[0]["meta"]) == ("ü" * 128, "n" * 128, many)
    assert (read[1]["meta"], read[2]["data"]) == (wide, big)
    assert (await log.append(*({"data": i} for i in range(10_000))))["count"] == 10_000


async def test_the_times_of_a_durable_append_are_told(log: Topic) -> None:
    assert "fsync_ms" not in (await log.append({"data": 1}))["performance"]
    await log.put(type="log", durable=True)
    answer = (await log.append({"data": 1}))["performance"]
    assert 0 < answer["fsync_ms"] <= answer["server_total_ms"]


async def test_a_long_wait_is_clamped(log: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    assert diffs.MAX_WAIT_MS == 30_000
    monkeypatch.setattr(diffs, "MAX_WAIT_MS", 200)
    assert (await log.post("diff", wait_ms=25_000))["records"] == []
