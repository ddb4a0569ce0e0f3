"""Queues of jqueue's shape whose client keeps large payloads in object storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import obstore
import pytest
from obstore.store import MemoryStore

from holdfast import AsyncClient, BrokerQueue, DirectQueue, ObjectError, Objects, StorageError
from tests.conftest import Running
from tests.sdk.workers import fact

BIG = b"\0\xff" * 1_000


@pytest.fixture
def objects() -> Objects:
    return Objects(MemoryStore(), over=1_000, most=10_000)


@pytest.fixture
async def keeping(service: Running, objects: Objects) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(service.url, objects=objects) as client:
        yield client


def keys(objects: Objects) -> list[str]:
    return [one["path"] for page in obstore.list(objects.store) for one in page]


async def test_payloads_come_from_the_store_and_go_with_the_ack_of_any_process(
    keeping: AsyncClient, objects: Objects, topic: str
) -> None:
    async with BrokerQueue(keeping, topic) as queue:
        await asyncio.gather(queue.enqueue("task", BIG), queue.enqueue("task", b"small"))
        assert len(keys(objects)) == 1
        assert sorted(job.payload for job in (await queue.read_state()).jobs) == [BIG, b"small"]
        jobs = await queue.dequeue("task", batch_size=2)
        assert sorted(job.payload for job in jobs) == [BIG, b"small"]
        await asyncio.gather(*(queue.nack(job.id) for job in jobs))
        assert len(keys(objects)) == 1, "a nack keeps it"
        jobs = await queue.dequeue("task", batch_size=2)
        await asyncio.gather(*(queue.ack(job.id) for job in jobs))
        await fact(lambda: not keys(objects))
        await queue.enqueue("task", BIG)
        [job] = await queue.dequeue("task")
        await DirectQueue(keeping, topic).ack(job.id)
    await fact(lambda: not keys(objects))


async def test_a_job_whose_object_is_gone_goes_back_alone(
    keeping: AsyncClient, objects: Objects, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = DirectQueue(keeping, topic)
    lost = await queue.enqueue("task", BIG)
    obstore.delete(objects.store, keys(objects))
    kept = await queue.enqueue("task", BIG)
    assert [job.id for job in (await queue.read_state()).jobs] == [kept.id]
    assert f"Job {lost.id} of {topic} is missing from the state" in caplog.text
    [job] = await queue.dequeue("task", batch_size=2)
    assert job.id == kept.id
    with pytest.raises(StorageError, match="the object, bucket or folder does not exist") as caught:
        await queue.dequeue("task")
    assert isinstance(caught.value.cause, ObjectError)
    state = await keeping.topic(topic).job(int(lost.id))
    assert state.state != "leased"
    assert "the object, bucket or folder does not exist" in (state.last_error or "")


async def test_a_payload_that_can_t_be_put_fails_alone(
    keeping: AsyncClient, objects: Objects, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with BrokerQueue(keeping, topic) as queue:

        async def failures(*payloads: bytes) -> list[BaseException]:
            calls = (queue.enqueue("task", payload) for payload in payloads)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            return [outcome for outcome in outcomes if isinstance(outcome, BaseException)]

        [huge] = await failures(b"x" * 11_000, b"small", BIG)
        assert isinstance(huge, ValueError)

        async def away(*_: object) -> None:
            raise OSError("away")

        monkeypatch.setattr(obstore, "put_async", away)
        [refused] = await failures(BIG, b"small")
        assert isinstance(refused, StorageError)
        assert "away" in str(refused)
        assert len((await queue.read_state()).jobs) == 3
