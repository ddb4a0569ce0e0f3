"""What a process remembers of topics: asked for once, not older than it may be, and never one that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.base.db.pool import Pools
from app.errors import InvalidRequest, NotAQueue, TopicNotFound
from app.features.logs.diffs import Diffs
from app.kernel.logs.log import Ask
from app.kernel.topics import cache, store
from app.kernel.topics.cache import Names
from app.kernel.topics.policy import AskedSettings, resolve
from app.kernel.topics.settings import Exhaustion, TopicType
from tests.engine.machines import Machine, Make, Start
from tests.queue.calls import until
from tests.topics.processes import Change, change

__all__ = ["change"]


async def lease(machine: Machine, topic: str) -> int:
    return (await machine.policies.get(topic)).config.lease_ms


@pytest.fixture
def delete(pools: Pools, topic: str) -> Callable[[], Awaitable[None]]:
    """Another process deletes the topic; nobody is told."""

    async def delete() -> None:
        assert await store.delete(pools.rest, topic, if_empty=False)

    return delete


async def test_many_who_ask_at_once_ask_once(machine: Machine, topic: str, change: Change) -> None:
    await change(1_000)
    policies = await asyncio.gather(*(machine.policies.get(topic) for _ in range(50)))
    assert len({id(policy) for policy in policies}) == 1
    await machine.policies.get(topic)
    assert machine.log.count("get") == 1


async def test_what_is_known_is_renewed_in_time(
    machine: Machine, topic: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "TTL_SECONDS", 2.0)
    await change(1_000)
    assert await lease(machine, topic) == 1_000
    await change(2_000)
    assert await lease(machine, topic) == 1_000

    async def renewed() -> bool:
        return await lease(machine, topic) == 2_000

    await until(renewed, "the change is known", seconds=10)


async def test_what_was_changed_or_deleted_here_is_known_at_once(
    machine: Machine, topic: str, change: Change, delete: Callable[[], Awaitable[None]]
) -> None:
    for lease_ms in (1_000, 2_000):
        await change(lease_ms)
        machine.policies.forget(topic)
        assert await lease(machine, topic) == lease_ms
    await delete()
    machine.policies.forget(topic)
    for asked in (4, 5):
        with pytest.raises(TopicNotFound):
            await machine.policies.get(topic)
        assert machine.log.count("get") == asked - 1, "what is not there is looked for each time"
    await change(1_000)
    assert await lease(machine, topic) == 1_000


@pytest.mark.parametrize("all_of_them", [False, True])
async def test_a_load_that_a_change_overtook_is_not_kept(
    all_of_them: bool, machine: Machine, topic: str, change: Change
) -> None:
    """It has read the row before the change, and ends after it."""
    await change(1_000)
    read, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        del machine.log.after["get"]
        read.set()
        await go_on.wait()

    machine.log.after["get"] = hold
    early = asyncio.create_task(machine.policies.get(topic))
    await read.wait()
    await change(2_000)
    if all_of_them:
        machine.policies.forget_all()
    else:
        machine.policies.forget(topic)
    assert await lease(machine, topic) == 2_000, "who asks after the change must not get what was read before it"
    go_on.set()
    assert (await early).config.lease_ms == 1_000
    assert await lease(machine, topic) == 2_000


async def test_who_watches_a_topic_hears_of_a_change(machine: Machine, topic: str) -> None:
    with machine.policies.watch(topic) as one, machine.policies.watch(topic) as two:
        machine.policies.forget("another")
        assert not one.done()
        machine.policies.announce(topic)
        assert one.done()
        assert two.done()
        machine.policies.forget(topic)
    with machine.policies.watch(topic) as three:
        assert not three.done()


async def test_a_load_that_fails_fails_for_all_who_asked_and_is_tried_again(
    machine: Machine, topic: str, change: Change
) -> None:
    await change(1_000)

    async def fail() -> None:
        del machine.log.before["get"]
        raise asyncpg.ConnectionDoesNotExistError("connection was closed")

    machine.log.before["get"] = fail
    answers = await asyncio.gather(*(machine.policies.get(topic) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncpg.ConnectionDoesNotExistError] * 3
    assert await lease(machine, topic) == 1_000


async def test_who_leaves_takes_nobodys_answer_along(machine: Machine, topic: str, change: Change) -> None:
    await change(1_000)
    go_on = asyncio.Event()
    machine.log.after["get"] = go_on.wait  # type: ignore[assignment]
    leaving, staying = (asyncio.create_task(machine.policies.get(topic)) for _ in range(2))
    for _ in range(5):
        await asyncio.sleep(0)
    leaving.cancel()
    go_on.set()
    assert (await staying).config.lease_ms == 1_000
    assert machine.log.count("get") == 1


async def test_a_verb_that_finds_its_topic_gone_runs_again_with_the_one_made_anew(
    machine: Machine, make: Make, topic: str, delete: Callable[[], Awaitable[None]]
) -> None:
    """Both by another process, that says nothing: what is known here is of a topic that is no more."""
    before = await make()
    assert (await machine.policies.get(topic)).topic.id == before.topic.id
    await delete()
    anew = await make()
    assert (await machine.policies.get(topic)).topic.id == before.topic.id
    found = await machine.policies.with_current(topic, lambda policy: machine.engine.core(Diffs).once(policy, Ask()))
    assert found.extent.head_seq == 0
    assert (await machine.policies.get(topic)).topic.id == anew.topic.id
    await delete()
    with pytest.raises(TopicNotFound):
        await machine.policies.with_current(topic, lambda policy: machine.engine.core(Diffs).once(policy, Ask()))


async def test_a_log_is_no_queue_until_it_is_made_anew_as_one(
    machine: Machine, make: Make, topic: str, delete: Callable[[], Awaitable[None]]
) -> None:
    await store.put(machine.pools.rest, topic, resolve(topic, AskedSettings(type="log")))
    with pytest.raises(NotAQueue):
        await machine.policies.queue(topic)
    with pytest.raises(NotAQueue):
        await machine.policies.queue_or_new(topic)
    assert (await machine.policies.get(topic)).topic.name == topic
    await delete()
    anew = await make()
    assert (await machine.policies.queue(topic)).topic.id == anew.topic.id


# Queues that are made when they are used


async def test_a_queue_is_made_by_the_first_of_many_who_use_it(start: Start, pools: Pools, topic: str) -> None:
    others = [start() for _ in range(3)]
    made = await asyncio.gather(*(other.policies.queue_or_new(topic) for other in others for _ in range(50)))
    assert len({policy.topic for policy in made}) == 1
    config = made[0].config
    assert (config.type, config.durable, made[0].version) == (TopicType.QUEUE, True, 1)
    assert (config.max_deliveries, config.on_exhausted) == (3, Exhaustion.DEAD_LETTER)
    assert (config.dead_letter, config.ttl_ms, config.lease_ms) == (f"{topic}.dlq", 86_400_000, 30_000)
    assert (made[0].max_retries, made[0].chosen.configured) == (3, False)
    trail = "SELECT count(*) FROM holdfast.audit WHERE subject = $1"
    assert await pools.rest.fetchval(trail, topic) == 1


async def test_one_that_exists_stays_as_it_was_made(machine: Machine, make: Make, topic: str) -> None:
    made = await make(max_deliveries=7)
    found = await machine.policies.queue_or_new(topic)
    assert (found.topic, found.config, found.max_retries) == (made.topic, made.config, 7)


async def test_it_is_made_while_others_delete_it(machine: Machine, pools: Pools, topic: str) -> None:
    async def delete() -> None:
        for _ in range(10):
            await store.delete(pools.rest, topic, if_empty=False)

    async def use() -> None:
        for _ in range(10):
            machine.policies.forget(topic)
            assert (await machine.policies.queue_or_new(topic)).config.type is TopicType.QUEUE

    await asyncio.gather(use(), use(), delete())


@pytest.mark.parametrize("name", ["orders.dlq", "", "a b", "x" * 252])
async def test_a_name_that_has_no_room_for_its_dead_letters_is_made_by_nobody(machine: Machine, name: str) -> None:
    with pytest.raises(InvalidRequest):
        await machine.policies.queue_or_new(name)


async def test_names_are_asked_for_together_and_once(machine: Machine, make: Make, topic: str) -> None:
    topic_id = (await make()).topic.id
    unknown = range(2**31 - 1_000, 2**31)
    names = Names(machine.pools.rest)
    assert await names.of_all([topic_id, *unknown]) == {topic_id: topic}
    assert machine.log.count("names_of") == 1
    assert await names.of(topic_id) == topic
    assert machine.log.count("names_of") == 1
    assert await names.of(unknown[0]) is None
