"""Payloads in object storage: there, back, and gone with their jobs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore, ObjectStore

from holdfast import (
    AsyncClient,
    AsyncTopic,
    Client,
    ObjectError,
    Objects,
    Queue,
    Record,
    Result,
    TopicConfig,
    async_context,
    errors,
    models,
    sql,
    sync_context,
)
from tests.conftest import Running
from tests.sdk.workers import fact, outcome, working

BIG = "x" * 5_000


@dataclass
class Picture:
    name: str
    pixels: list[int]


@pytest.fixture
def objects() -> Objects:
    return Objects(MemoryStore(), over=1_000)


@pytest.fixture
async def keeping(service: Running, objects: Objects) -> AsyncIterator[Queue]:
    """To declare handlers on, whose large payloads go to the store."""
    async with Queue(service.url, objects=objects) as keeping:
        yield keeping


@pytest.fixture
async def putting(service: Running, queue: AsyncTopic, objects: Objects) -> AsyncIterator[AsyncTopic]:
    """The queue, of a client whose large payloads go to the store."""
    async with AsyncClient(service.url, objects=objects) as client:
        yield client.topic(queue.name)


def keys(objects: Objects) -> list[str]:
    return sorted(one["path"] for page in obstore.list(objects.store) for one in page)


@pytest.mark.parametrize(
    ("data", "comes"),
    [
        (Picture("a", list(range(1_000))), {"name": "a", "pixels": list(range(1_000))}),
        (BIG, BIG),
        (BIG.encode() + b"\0\xff", BIG.encode() + b"\0\xff"),
    ],
)
async def test_a_large_payload_is_an_object_until_its_job_is_done(
    queue: AsyncTopic, keeping: Queue, objects: Objects, data: Any, comes: Any
) -> None:
    seen: list[Any] = []

    @keeping.handler(queue.name)
    async def handler(payload: Any) -> None:
        assert len(keys(objects)) == 1
        seen.append(payload)

    seq = int(await keeping.get(queue.name).push(data))
    # What any other client is shown, and any other store has.
    reference = (await queue.job(seq)).data["$object"]
    [key] = keys(objects)
    content = obstore.get(objects.store, key).bytes().to_bytes()
    assert reference == {
        "key": key,
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "content_type": "application/octet-stream" if isinstance(data, bytes) else "application/json",
    }
    assert key.startswith(f"holdfast/{queue.name}/")
    async with working(keeping):
        await outcome(queue, seq)
        await fact(lambda: not keys(objects))
    assert seen == [comes]


async def test_what_is_small_stays_in_the_job_and_a_text_keeps_its_type(
    queue: AsyncTopic, putting: AsyncTopic, objects: Objects
) -> None:
    small = "x" * 998  # with its quotes as many bytes as may be
    await putting.enqueue_many([small, Record(data=small + "x", tag="t", content_type="text/plain"), {"a": 1}])
    await putting.enqueue(b"y" * 1_001)
    await putting.enqueue(BIG, content_type="text/plain; charset=utf-8")
    jobs = (await queue.claim(max=10)).jobs
    assert [isinstance(job.data, dict) and "$object" in job.data for job in jobs] == [False, False, False, True, True]
    data = [await objects.get_async(job.data) for job in jobs]
    assert data == [small, small + "x", {"a": 1}, b"y" * 1_001, BIG]
    assert jobs[4].data["$object"]["content_type"] == "text/plain; charset=utf-8"
    assert len(keys(objects)) == 2


async def test_a_fifo_topic_drops_the_same_payload(client: AsyncClient, topic: str, keeping: Queue) -> None:
    fifo = client.topic(f"{topic}.fifo")
    await fifo.put()
    first, again = [await keeping.client.topic(fifo.name).enqueue(BIG, group="g") for _ in range(2)]
    by_service = await fifo.enqueue(BIG, group="g")
    assert (again.seq, again.duplicate) == (by_service.seq, by_service.duplicate) == (first.seq, True)


@pytest.mark.parametrize("kind", ["memory", "folder"])
async def test_a_store_lists_the_keys_that_references_have(kind: str, tmp_path: Path) -> None:
    """gc goes by that."""
    store: ObjectStore = MemoryStore() if kind == "memory" else LocalStore(tmp_path / "objects", mkdir=True)
    objects = Objects(store, over=1_000)
    put = [await objects.put_async(topic, "x") for topic in ("a:b", "A..b", "a.b_c-d", "a.")]
    assert keys(objects) == sorted(one["$object"]["key"] for one in put)
    assert all(objects.owns(key) for key in keys(objects))


async def test_the_sync_client_does_the_same(service: Running, topic: str, objects: Objects) -> None:
    def work() -> None:
        with Client(service.url, objects=objects) as client:
            mail = client.topic(topic)
            mail.put()
            mail.enqueue(BIG)
            [job] = mail.claim().jobs
            assert objects.get(job.data) == BIG

    await asyncio.to_thread(work)
    [key] = keys(objects)
    objects.delete([key, key])
    assert keys(objects) == []


async def test_an_object_is_there_before_its_job(
    client: AsyncClient, putting: AsyncTopic, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    await client.topic(putting.name).delete()
    with pytest.raises(errors.TopicNotFound):
        await putting.enqueue(BIG)
    assert len(keys(objects)) == 1  # garbage
    await client.topic(putting.name).put()
    monkeypatch.setattr(obstore, "put_async", full)
    with pytest.raises(ObjectError, match=f"can't put holdfast/{putting.name}/.*: no space left"):
        await putting.enqueue(BIG)
    assert (await putting.jobs().page()).items == ()


async def test_a_failed_job_keeps_its_object_and_so_does_its_dead_letter(
    queue: AsyncTopic, client: AsyncClient, keeping: Queue, objects: Objects
) -> None:
    dead = f"{queue.name}.dead"
    await queue.put(TopicConfig(max_deliveries=2, dead_letter=dead))
    tries: list[str] = []
    letters: list[str] = []

    @keeping.handler(queue.name, retry=(0,))
    async def handler(payload: str) -> None:
        tries.append(payload)
        raise RuntimeError("no")

    @keeping.handler(dead)
    async def letter(payload: str) -> None:
        letters.append(payload)

    await keeping.get(queue.name).push(BIG)
    async with working(keeping, topics=[queue.name]):
        await fact(lambda: len(tries) == 2)
    [job] = (await client.topic(dead).jobs().page()).items
    assert objects.get(job.data) == BIG
    async with working(keeping, topics=[dead]):
        await fact(lambda: letters and not keys(objects))
    assert (tries, letters) == ([BIG, BIG], [BIG])


async def test_what_may_be_replayed_keeps_its_object(
    queue: AsyncTopic, client: AsyncClient, keeping: Queue, objects: Objects
) -> None:
    await queue.put(TopicConfig(replayable=True))
    seen: list[str] = []

    @keeping.handler(queue.name)
    async def handler(payload: str) -> None:
        seen.append(payload)

    await keeping.get(queue.name).push(BIG)
    async with working(keeping):
        await fact(lambda: seen)
    assert len(keys(objects)) == 1
    replayed = await client._sender.http.post(f"{client.account.base_url}/api/topics/{queue.name}/replay", json={})
    assert replayed.json()["enqueued"] == 1
    async with working(keeping):
        await fact(lambda: len(seen) == 2)
    assert seen == [BIG, BIG]


async def test_an_ack_that_comes_too_late_leaves_the_object_to_the_next_delivery(
    queue: AsyncTopic, keeping: Queue, objects: Objects
) -> None:
    seen: list[str] = []

    @keeping.handler(queue.name)
    async def handler(payload: str) -> None:
        seen.append(payload)
        if len(seen) == 1:  # somebody else ends this delivery
            _, seq, lease = async_context().token.rsplit(":", 2)
            await queue.nack(models.Lease(int(seq), keeping.account.node, lease), delay_ms=500)

    seq = int(await keeping.get(queue.name).push(BIG))
    async with working(keeping):
        assert (await outcome(queue, seq)).state == "completed"
        await fact(lambda: not keys(objects))
    assert seen == [BIG, BIG]


async def test_what_is_not_as_it_was_put_fails_the_job(
    queue: AsyncTopic, keeping: Queue, handlers: Queue, objects: Objects
) -> None:
    ran: list[str] = []
    keeping.handler(queue.name, retry=())(lambda _: ran.append("keeping"))
    handlers.handler(queue.name, retry=())(lambda _: ran.append("without a store"))
    await queue.put(TopicConfig(on_exhausted="fail"))
    good = await objects.put_async(queue.name, BIG)
    key = good["$object"]["key"]
    obstore.put(objects.store, "others/" + "0" * 32, b"secret")
    bad = {
        "its SHA-256 does not match": {**good["$object"], "sha256": "0" * 64},
        "bytes instead of 7": {**good["$object"], "size": 7},
        "the object, bucket or folder does not exist": {**good["$object"], "key": key[:-32] + "0" * 32},
        "not an object under holdfast/": {**good["$object"], "key": "others/" + "0" * 32},
        "the limit is": {**good["$object"], "size": 1 << 40},
    }
    seqs = (await queue.enqueue_many([{"$object": one} for one in bad.values()])).seqs
    async with working(keeping):
        ends = [await outcome(queue, seq) for seq in seqs]
    seq = (await queue.enqueue(good)).seq
    async with working(handlers):
        ends.append(await outcome(queue, seq))
    for end, why in zip(ends, [*bad, "pass objects=Objects"], strict=True):
        assert end.state == "failed"
        assert end.error
        assert why in end.error
    assert not ran
    assert key in keys(objects)
    with pytest.raises(ObjectError):
        objects.get({"$object": bad["the object, bucket or folder does not exist"]})


def length(payload: bytes) -> Any:
    if len(payload) > 10_000:
        sync_context().self().push(payload[:5_000])
    return Result(len(payload))


async def test_processes_are_given_payloads_and_put_them(service: Running, queue: AsyncTopic, tmp_path: Path) -> None:
    objects = Objects(LocalStore(tmp_path / "shared", mkdir=True), over=1_000)
    async with Queue(service.url, objects=objects) as keeping:
        keeping.handler(queue.name, pool="process", concurrency=1)(length)
        seq = int(await keeping.get(queue.name).push(b"x" * 20_000))
        async with working(keeping):
            assert (await outcome(queue, seq)).result == 20_000
            assert (await outcome(queue, seq + 1)).result == 5_000
            await fact(lambda: not keys(objects))


async def test_by_sql_too(
    queue: AsyncTopic, keeping: Queue, objects: Objects, connect: Callable[[], Awaitable[Any]]
) -> None:
    """Whether the ack in SQL was committed, the worker does not know for sure: such an object is left to gc."""
    db = await connect()
    seen: list[str] = []

    @keeping.handler(queue.name)
    async def handler(payload: str) -> None:
        seen.append(payload)
        await db.fetchval(*sql.complete(async_context().token).asyncpg)

    await db.fetchval(*sql.enqueue(queue.name, await objects.put_async(queue.name, BIG)).asyncpg)
    async with working(keeping):
        await fact(lambda: seen)
    assert seen == [BIG]
    assert len(keys(objects)) == 1


async def test_a_store_that_fails_leaves_the_object_and_the_job_is_done(
    queue: AsyncTopic, keeping: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any) -> None:
        raise OSError("away")

    monkeypatch.setattr(obstore, "delete", away)
    keeping.handler(queue.name)(lambda _: None)
    seq = int(await keeping.get(queue.name).push(BIG))
    async with working(keeping):
        assert (await outcome(queue, seq)).state == "completed"
    assert "were not deleted: the store can't remove objects: away" in caplog.text


def test_nonsense_is_refused() -> None:
    refused: list[dict[str, Any]] = [{"over": -1}, {"over": 2_000_000}, {"over": 10, "most": 9}, {"prefix": "a//b"}]
    for options in refused:
        with pytest.raises(ValueError, match=r"over must|prefix must"):
            Objects(MemoryStore(), **options)
    with pytest.raises(ValueError, match="the limit is"):
        Objects(MemoryStore(), over=1, most=10).put("t", b"x" * 11)


class Slow(Objects):
    """A store whose answers are waited for."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, over=1_000)
        self.go = asyncio.Event()
        self.gave = asyncio.Event()

    async def get_async(self, data: Any) -> Any:
        await self.go.wait()
        self.gave.set()
        return await super().get_async(data)


async def test_a_thread_does_not_begin_what_was_given_up_while_it_was_fetched(
    service: Running, queue: AsyncTopic
) -> None:
    ran: list[str] = []
    slow = Slow(MemoryStore())
    async with Queue(service.url, objects=slow) as keeping:

        @keeping.handler(queue.name, timeout=0.5, retry=())
        def handler(payload: str) -> None:
            ran.append(payload)

        seq = int(await keeping.get(queue.name).push(BIG))
        async with working(keeping):
            end = await outcome(queue, seq)
            slow.go.set()
            await asyncio.wait_for(slow.gave.wait(), 20)
            small = int(await keeping.get(queue.name).push("small"))
            assert (await outcome(queue, small)).state == "completed"
    assert (end.state, end.error) == ("failed", "took longer than 0.5 s")
    assert ran == ["small"]
