"""Log topics over HTTP: what is appended is read behind a cursor, in order, byte for byte."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from app.features.logs import v0 as diffs
from tests.api import bad_input
from tests.api.bad_input import Bad
from tests.api.dialect import JSON, Body, Topic, accepted, eventually, refused

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


async def test_payloads_come_back_byte_for_byte(log: Topic) -> None:
    odd = b'{"z" : 1.50,  "a":"\\u00e9\\/", "n": 1E400}'
    body = b'{"records":[{"data":%b,"meta":{ "k" :1.0}}]}' % odd
    accepted(await log.http.post(log.path, content=body, headers=JSON))
    answer = await log.http.post(f"{log.path}/diff")
    assert b'"data":%b,"meta":{ "k" :1.0}}' % odd in answer.content


async def test_a_diff_without_a_body_has_its_defaults(log: Topic) -> None:
    await log.append(*({"data": i, "tag": "t", "meta": {"m": i}} for i in range(300)))
    read = accepted(await log.http.post(f"{log.path}/diff"))
    assert len(read["records"]) == 256
    assert (read["caught_up"], read["lag"], read["next_from_seq"]) == (False, 44, 256)
    assert set(read["records"][0]) == {"$seq", "$ts", "data", "meta"}


@pytest.mark.parametrize(("limit", "shown"), [(0, 256), (1, 1), (1_000, 1_000), (5_000, 1_000)])
async def test_limits_are_clamped(log: Topic, limit: int, shown: int) -> None:
    await log.append(*({"data": i} for i in range(1_100)))
    read = await log.post("diff", limit=limit)
    assert (len(read["records"]), read["next_from_seq"]) == (shown, shown)


async def test_a_cursor_walks_through(log: Topic) -> None:
    await log.append(*({"data": i} for i in range(25)))
    at, seen = 0, []
    while True:
        read = await log.post("diff", from_seq=at, limit=10)
        seen += data(read)
        at = read["next_from_seq"]
        if read["caught_up"]:
            break
    assert seen == list(range(25))


async def test_tags_meta_and_nodes_are_shown_as_asked(log: Topic) -> None:
    await log.append({"data": 1, "tag": "a", "node": "own", "meta": {"k": 1}}, {"data": 2}, node="batch")
    full = (await log.post("diff", include_tags=True))["records"]
    assert [record.get("$tag") for record in full] == ["a", None]
    assert [record["$node"] for record in full] == ["own", "batch"]
    assert "meta" not in full[1]
    plain = (await log.post("diff", include_meta=False))["records"]
    assert "meta" not in plain[0]
    assert "$tag" not in plain[0]


@pytest.mark.parametrize("node", ["a", ["a"], ["a", "c"]])
async def test_a_reader_leaves_out_its_own_records_and_gets_on(log: Topic, node: object) -> None:
    for i, who in enumerate(["a", "b", "A", None, "a", "a"]):
        await log.append({"data": i, "node": who})
    read = await log.post("diff", node=node)
    assert data(read) == [1, 2, 3]
    assert (read["next_from_seq"], read["caught_up"], read["performance"]["records_scanned"]) == (6, True, 6)
    await log.put(type="log", dedupe_node=False)
    assert data(await log.post("diff", node=node)) == [0, 1, 2, 3, 4, 5]


async def test_bytes_bound_a_batch_but_one_record_always_comes(log: Topic) -> None:
    await log.append({"data": "x" * 5_000}, {"data": "y" * 500}, {"data": "z" * 500}, {"data": "w" * 500})
    first = await log.post("diff", max_batch_bytes=100)
    assert (len(first["records"]), first["next_from_seq"], first["caught_up"]) == (1, 1, False)
    second = await log.post("diff", from_seq=1, max_batch_bytes=1_100)
    assert (len(second["records"]), second["next_from_seq"]) == (2, 3)


async def test_a_batch_is_a_mebibyte_unless_asked_otherwise(log: Topic) -> None:
    for _ in range(10):
        await log.append({"data": "x" * 1_000_000})
    assert len((await log.post("diff"))["records"]) == 1
    assert len((await log.post("diff", max_batch_bytes=4_100_000))["records"]) == 4
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


async def test_a_write_creates_the_log_that_it_describes(http: httpx.AsyncClient, topic: str) -> None:
    body = {"records": [{"data": 1}], "config": {"cap_records": 5, "auto_create": False}, "create": True}
    assert (await http.post(f"/v0/topics/{topic}", json=body)).status_code == 201
    assert (await Topic(http, topic).state())["config"]["cap_records"] == 5


async def test_many_first_writes_make_one_topic(http: httpx.AsyncClient, topic: str) -> None:
    answers = await asyncio.gather(
        *(http.post(f"/v0/topics/{topic}", json={"records": [{"data": i}]}) for i in range(12))
    )
    assert sorted(answer.status_code for answer in answers) == [200] * 11 + [201]
    assert sorted(accepted(answer)["first_seq"] for answer in answers) == list(range(1, 13))


async def test_a_key_that_may_not_administer_makes_no_topic_to_its_own_taste(serve: Serve, topic: str) -> None:
    guarded = await serve(api_keys="w:write,r:read")
    async with httpx.AsyncClient(base_url=guarded.url, headers={"authorization": "Bearer w"}) as http:
        path, plain = f"/v0/topics/{topic}", {"records": [{"data": 1}]}
        refused(await http.post(path, json={**plain, "config": {"cap_records": 1}}), 403, "forbidden")
        assert (await http.post(path, json=plain)).status_code == 201
        refused(await http.post(f"{path}/diff"), 403, "forbidden")


async def test_the_state_of_a_log(log: Topic) -> None:
    empty = await log.state()
    assert (empty["head_seq"], empty["earliest_seq"], empty["next_seq"]) == (0, 1, 1)
    assert (empty["count"], empty["bytes"], empty["last_write_ts"]) == (0, 0, None)
    await log.append({"data": "abc"}, {"data": 1, "meta": {"a": 1}})
    state = await log.state()
    (last,) = (await log.post("diff", from_seq=1))["records"]
    assert (state["head_seq"], state["earliest_seq"], state["count"], state["bytes"]) == (2, 1, 2, 5 + 1 + 7)
    assert state["last_write_ts"] == last["$ts"]
    assert "queue" not in state
    listed = accepted(await log.http.get("/v0/topics", params={"prefix": log.name}))["topics"]
    assert [(item["topic"], item["count"], item["bytes"], item["head_seq"]) for item in listed] == [
        (log.name, 2, 13, 2)
    ]


async def test_a_log_is_deleted_with_all_that_it_holds(log: Topic) -> None:
    await log.append({"data": 1}, idempotency_key="k")
    refused(await log.http.delete(f"{log.path}?if_empty=true"), 409, "topic_not_empty")
    await log.post("delete", before_seq=2)
    accepted(await log.http.delete(f"{log.path}?if_empty=true"))
    refused(await log.http.post(f"{log.path}/diff"), 404, "topic_not_found")
    await log.put(type="log")
    answer = await log.append({"data": 2}, idempotency_key="k")
    assert (answer["seqs"], answer["deduped"]) == ([1], False)


async def test_a_reader_of_a_log_made_anew_is_told(log: Topic) -> None:
    await log.append(*({"data": i} for i in range(5)))
    await log.drop()
    await log.put(type="log")
    await log.append({"data": "new"})
    read = await log.post("diff", from_seq=5)
    assert read["tombstone"]["reason"] == "recreated"
    assert (data(read), read["next_from_seq"], read["caught_up"]) == (["new"], 1, True)


async def until_read(service: Running, topic: str, readers: int = 1) -> None:
    async def fact() -> bool:
        return service.context.engine.readers.waiting_for(topic) == readers

    await eventually(fact)


async def test_all_who_wait_are_woken_by_one_record(log: Topic, service: Running) -> None:
    waiting = [asyncio.create_task(log.post("diff", wait_ms=20_000)) for _ in range(5)]
    await until_read(service, log.name, 5)
    began = time.monotonic()
    await log.append({"data": 1})
    assert [data(read) for read in await asyncio.gather(*waiting)] == [[1]] * 5
    assert time.monotonic() - began < 10


async def test_a_wait_ends_with_nothing_at_its_time(log: Topic) -> None:
    began = time.monotonic()
    read = await log.post("diff", wait_ms=200)
    assert time.monotonic() - began >= 0.2
    assert (read["records"], read["caught_up"]) == ([], True)


async def test_a_record_of_the_readers_own_ends_its_wait(log: Topic, service: Running) -> None:
    waiting = asyncio.create_task(log.post("diff", wait_ms=20_000, node="me"))
    await until_read(service, log.name)
    await log.append({"data": 1}, node="me")
    read = await waiting
    assert (read["records"], read["next_from_seq"]) == ([], 1)


async def test_what_another_process_appends_ends_a_wait(log: Topic, serve: Serve) -> None:
    other = await serve()
    async with httpx.AsyncClient(base_url=other.url, timeout=35) as http:
        waiting = asyncio.create_task(log.through(http).post("diff", wait_ms=20_000))
        await until_read(other, log.name)
        await log.append({"data": 1})
        assert data(await waiting) == [1]


async def test_a_reader_of_a_topic_that_is_deleted_is_told(log: Topic, service: Running) -> None:
    waiting = asyncio.create_task(log.http.post(f"{log.path}/diff", json={"wait_ms": 20_000}))
    await until_read(service, log.name)
    await log.drop()
    refused(await waiting, 404, "topic_not_found")


async def test_a_reader_that_leaves_is_forgotten(log: Topic, service: Running) -> None:
    waiting = asyncio.create_task(log.post("diff", wait_ms=30_000))
    await until_read(service, log.name)
    waiting.cancel()
    await until_read(service, log.name, 0)


async def test_a_service_that_stops_sends_its_readers_away(log: Topic, serve: Serve) -> None:
    other = await serve()
    async with httpx.AsyncClient(base_url=other.url, timeout=35) as http:
        waiting = asyncio.create_task(log.through(http).post("diff", wait_ms=30_000))
        await until_read(other, log.name)
        await other.stop()
        assert (await waiting)["records"] == []


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


OF_JOBS = ("priority", "delay", "time", "deliveries")


@pytest.mark.parametrize(
    "bad", [bad for bad in bad_input.RECORDS if not any(word in bad.name for word in OF_JOBS)], ids=str
)
async def test_records_of_a_log_have_the_bounds_of_jobs(log: Topic, bad: Bad) -> None:
    refused(await bad.send(log.http, log.name), bad.status, bad.code)
    assert (await log.state())["head_seq"] == 0


@pytest.mark.parametrize("bad", bad_input.BATCHES[:11], ids=str)
async def test_so_have_batches(log: Topic, bad: Bad) -> None:
    error = refused(await bad.send(log.http, log.name), bad.status, bad.code)
    assert bad.detail.items() <= error.get("detail", {}).items()
    assert (await log.state())["head_seq"] == 0


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


async def test_a_zero_of_bytes_is_the_default(log: Topic) -> None:
    await log.append({"data": "x" * 600_000}, {"data": "y" * 600_000})
    assert len((await log.post("diff", max_batch_bytes=0))["records"]) == 1
    assert len((await log.post("diff", max_batch_bytes=1_300_000))["records"]) == 2


async def test_a_long_wait_is_clamped(log: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    assert diffs.MAX_WAIT_MS == 30_000
    monkeypatch.setattr(diffs, "MAX_WAIT_MS", 200)
    began = time.monotonic()
    assert (await log.post("diff", wait_ms=25_000))["records"] == []
    assert 0.2 <= time.monotonic() - began < 10
