"""A topic's row under several hands: made once, replaced whole, and gone with all that belongs to it."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from app.base.db.pool import Pools
from app.errors import TopicExistsIncompatible, TopicNotEmpty
from app.kernel.model import Batch
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from app.kernel.topics.settings import Config, Exhaustion, TopicType
from tests.engine.machines import Machine, Make


def queue(topic: str, **settings: object) -> Config:
    return resolve(topic, AskedSettings(**{"type": "queue", **settings}))


async def stored(pools: Pools, topic: str) -> Policy:
    policy = await store.get(pools.rest, topic, DEFAULTS)
    assert policy is not None
    return policy


async def sequences(pools: Pools, topic: str) -> list[str]:
    """The sequences that a topic of this name has now."""
    rows = await pools.rest.fetch(
        "SELECT relname FROM pg_class JOIN holdfast.topics t ON relname = 'seq_' || t.id WHERE t.name = $1", topic
    )
    return [row["relname"] for row in rows]


async def test_a_replacement_is_whole_and_an_equal_one_is_none(pools: Pools, topic: str) -> None:
    assert await store.put(pools.rest, topic, queue(topic, lease_ms=5_000, dead_letter="dead")) is True
    assert await store.put(pools.rest, topic, queue(topic, lease_ms=5_000, dead_letter="dead")) is False
    first = await stored(pools, topic)
    assert (first.version, first.config.lease_ms, first.config.on_exhausted) == (1, 5_000, Exhaustion.DEAD_LETTER)
    assert await store.put(pools.rest, topic, queue(topic, max_deliveries=2)) is False
    policy = await stored(pools, topic)
    assert policy.config == queue(topic, max_deliveries=2), "a setting outlived its replacement"
    assert policy.version == 2


async def test_of_two_creators_one_creates(pools: Pools, topic: str) -> None:
    created = await asyncio.gather(*(store.put(pools.rest, topic, queue(topic)) for _ in range(4)))
    assert sorted(created) == [False, False, False, True]
    assert len(await sequences(pools, topic)) == 1


async def test_of_two_creators_of_different_kinds_one_is_refused(pools: Pools, topic: str) -> None:
    kinds = [TopicType.QUEUE, TopicType.LOG] * 2
    puts = [store.put(pools.rest, topic, Config(type=kind)) for kind in kinds]
    answers = await asyncio.gather(*puts, return_exceptions=True)
    policy = await stored(pools, topic)
    for kind, answer in zip(kinds, answers, strict=True):
        assert isinstance(answer, bool if kind is policy.config.type else TopicExistsIncompatible)
    assert [answer for answer in answers if answer is True] == [True]


async def test_replacements_at_once_are_all_counted(pools: Pools, topic: str) -> None:
    """Each waits for the one before, and is measured against what that one left."""
    await store.put(pools.rest, topic, queue(topic))
    leases = range(1_000, 1_012)
    await asyncio.gather(*(store.put(pools.rest, topic, queue(topic, lease_ms=lease)) for lease in leases))
    policy = await stored(pools, topic)
    assert policy.config.lease_ms in leases
    assert policy.version == 1 + len(leases)


async def test_it_is_made_and_deleted_by_many_at_once(pools: Pools, topic: str) -> None:
    async def maker() -> None:
        for _ in range(12):
            await store.put(pools.rest, topic, queue(topic))

    async def deleter() -> None:
        for _ in range(12):
            await store.delete(pools.rest, topic, if_empty=False)

    await asyncio.gather(maker(), maker(), deleter(), deleter())
    await store.put(pools.rest, topic, queue(topic))
    policy = await stored(pools, topic)
    assert await sequences(pools, topic) == [f"seq_{policy.topic.id}"]
    orphans = await pools.rest.fetchval(
        "SELECT count(*) FROM pg_class WHERE relname LIKE 'seq\\_%' AND relkind = 'S'"
        " AND NOT EXISTS (SELECT 1 FROM holdfast.topics t WHERE relname = 'seq_' || t.id)"
    )
    assert orphans == 0


async def test_a_namesake_has_another_id(pools: Pools, topic: str, make: Make) -> None:
    old = await make()
    assert await store.delete(pools.rest, topic, if_empty=False) is True
    assert await store.delete(pools.rest, topic, if_empty=False) is False
    new = await make()
    assert new.topic.id != old.topic.id
    assert new.topic.sequence != old.topic.sequence


@pytest.mark.parametrize("state", ["ready", "scheduled", "leased"])
async def test_one_that_holds_a_live_job_is_not_empty(state: str, machine: Machine, make: Make, topic: str) -> None:
    policy = await make()
    await machine.enqueue(policy, Batch(payloads=[b"1"], delays_ms=[60_000] if state == "scheduled" else []))
    if state == "leased":
        assert len(await machine.claim(policy)) == 1
    with pytest.raises(TopicNotEmpty):
        await store.delete(machine.pools.rest, topic, if_empty=True)
    assert await store.get(machine.pools.rest, topic, DEFAULTS) is not None
    assert await store.delete(machine.pools.rest, topic, if_empty=False)


async def test_names_are_paged_in_the_order_of_their_bytes(pools: Pools, topic: str, make: Make) -> None:
    names = [(await make(f".{end}")).topic.name for end in ("B", "a", "a.", "a:b", "Z-1", "_x")]
    await make("x")
    shown: list[str] = []
    while page := await store.page(pools.rest, topic + ".", shown[-1] if shown else "", 2, defaults=DEFAULTS):
        assert len(page) <= 2
        shown += [policy.topic.name for policy in page]
    assert shown == sorted(names)


async def test_a_configuration_that_the_table_refuses_leaves_nothing(pools: Pools, topic: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await store.put(pools.rest, topic, Config(type=TopicType.QUEUE, lease_ms=1))
    assert await store.get(pools.rest, topic, DEFAULTS) is None
    assert await sequences(pools, topic) == []
