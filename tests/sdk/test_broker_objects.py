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


async def test_payloads_come_from_the_store_and_go_with_the_ack(
    keeping: AsyncClient, objects: Objects, topic: str
) -> None:
    async with BrokerQueue(keeping, topic) as queue:
        await asyncio.gather(queue.enqueue("task", BIG), queue.enqueue("task", b"small"))
        assert len(keys(objects)) == 1
        assert sorted(job.payload for job in (await queue.read_state()).jobs) == [BIG, b"small"]
        jobs = await queue.dequeue("task", batch_size=2)
        assert sorted(job.payload for job in jobs) == [BIG, b"small"]
        await asyncio.gather(*(queue.ack(job.id) for job in jobs))
    assert not keys(objects)


async def test_another_process_acks_and_removes(keeping: AsyncClient, objects: Objects, topic: str) -> None:
    queue, other = DirectQueue(keeping, topic), DirectQueue(keeping, topic)
    await queue.enqueue("task", BIG)
    [job] = await queue.dequeue("task")
    await other.ack(job.id)
    await fact(lambda: not keys(objects))


async def test_a_nack_keeps_the_object(keeping: AsyncClient, objects: Objects, topic: str) -> None:
    queue = DirectQueue(keeping, topic)
    await queue.enqueue("task", BIG)
    for _ in range(2):
        [job] = await queue.dequeue("task")
        assert job.payload == BIG
        await queue.nack(job.id)
    assert len(keys(objects)) == 1


async def test_a_job_whose_object_is_gone_goes_back_alone(
    keeping: AsyncClient, objects: Objects, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = DirectQueue(keeping, topic)
    lost = await queue.enqueue("task", BIG)
    obstore.delete(objects.store, keys(objects))
    kept = await queue.enqueue("task", BIG)
    assert [job.id for job in (await queue.read_state()).jobs] == [kept.id]
    assert f"Job {lost.id} of {topic} is left out of the state" in caplog.text
    [job] = await queue.dequeue("task", batch_size=2)
    assert job.id == kept.id
    with pytest.raises(StorageError, match="no such object") as caught:
        await queue.dequeue("task")
    assert isinstance(caught.value.cause, ObjectError)
    state = await keeping.topic(topic).job(int(lost.id))
    assert state.state != "leased"
    assert "no such object" in (state.last_error or "")


async def test_a_payload_that_can_t_be_put_fails_alone(
    keeping: AsyncClient, objects: Objects, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def payloads(outcomes: list[object]) -> list[type]:
        return [type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)]

    async with BrokerQueue(keeping, topic) as queue:
        huge = [b"x" * 11_000, b"small", BIG]
        outcomes = await asyncio.gather(*(queue.enqueue("task", one) for one in huge), return_exceptions=True)
        assert payloads([*outcomes]) == [ValueError]

        async def away(*_: object) -> None:
            raise OSError("away")

        monkeypatch.setattr(obstore, "put_async", away)
        outcomes = await asyncio.gather(
            *(queue.enqueue("task", one) for one in [BIG, b"small"]), return_exceptions=True
        )
        assert payloads([*outcomes]) == [StorageError]
        assert "away" in str(outcomes[0])
        assert len((await queue.read_state()).jobs) == 3
