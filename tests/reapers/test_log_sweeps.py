"""The sweeps of logs: what is too old, what is above caps that were lowered, and keys whose window has passed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.features.logs.sweeps import trim
from app.features.upkeep import sweeps
from app.kernel.logs import log
from app.kernel.logs.log import Ask
from app.kernel.model import Batch
from app.kernel.topics import store
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from tests.engine.machines import Machine
from tests.queue.calls import until
from tests.reapers.test_sweeps import at_once

Make = Callable[..., Awaitable[Policy]]


@pytest.fixture
def make_log(machine: Machine) -> Make:
    """Creates a log, or gives it other settings."""

    async def make(name: str, **settings: object) -> Policy:
        asked = AskedSettings(**{"type": "log", **settings})
        await store.put(machine.pools.rest, name, resolve(name, asked))
        machine.policies.forget(name)
        return await machine.policies.get(name)

    return make


async def append(machine: Machine, policy: Policy, count: int) -> None:
    await machine.engine.logs.append(policy, Batch(payloads=[b"1"] * count), count, None)


async def old(own: Pools, policy: Policy) -> None:
    """Wait until all that a log holds is older than its time to live."""
    query = "SELECT max(created_at) < clock_timestamp() - $2 * interval '1 ms' FROM holdfast.records WHERE topic = $1"
    await until(lambda: own.rest.fetchval(query, policy.topic.name, policy.config.ttl_ms), "they are too old")


async def state(own: Pools, policy: Policy) -> log.LogState:
    return (await log.states(own.rest, [(policy.topic, 0)]))[policy.topic.name]


async def test_what_is_too_old_goes_for_good(machine: Machine, make_log: Make, own: Pools) -> None:
    short, long = await make_log("short", ttl_ms=100), await make_log("long", ttl_ms=3_600_000)
    await append(machine, short, 6_000)
    await append(machine, long, 3)
    await old(own, short)
    assert sum(await at_once(own, trim)) == 6_000
    assert await trim(machine.pools, machine.engine) == 0
    assert await own.rest.fetchval("SELECT count(*) FROM holdfast.records") == 3
    left = await state(own, short)
    assert (left.count, left.bytes, left.earliest_seq, left.head_seq) == (0, 0, 6_001, 6_000)
    read = await log.read(own.rest, short.topic, Ask(), short.config.ttl_ms)
    assert read is not None
    assert (read[0].ttl_lost_to, read[0].cap_lost_to, read[1].next_seq) == (6_000, 0, 6_000)


async def test_caps_that_were_lowered_take_effect(machine: Machine, make_log: Make, own: Pools) -> None:
    policy = await make_log("caps")
    await append(machine, policy, 8_000)
    policy = await make_log("caps", cap_records=10)
    assert await trim(machine.pools, machine.engine) == 7_990
    left = await state(own, policy)
    assert (left.count, left.bytes, left.earliest_seq) == (10, 10, 7_991)
    await make_log("caps", cap_bytes=4)
    assert await trim(machine.pools, machine.engine) == 6
    await make_log("caps", cap_records=1, discard="reject")
    assert await trim(machine.pools, machine.engine) == 0


async def test_keys_are_forgotten_after_their_window(machine: Machine, make: Make, make_log: Make, own: Pools) -> None:
    short = await make_log("keys", idempotency_window_ms=50)
    long = await make("jobs", idempotency_window_ms=3_600_000)
    for i in range(30):
        await machine.engine.logs.append(short, Batch(payloads=[b"1"]), 1, str(i))
    await machine.engine.enqueues.place(long, Batch(payloads=[b"1"]), 1, "k")
    query = "SELECT count(*) = 30 FROM holdfast.idempotency WHERE expires_at < clock_timestamp()"
    await until(lambda: own.rest.fetchval(query), "their window has passed")
    assert sum(await at_once(own, sweeps.idempotency)) == 30
    assert [row["key"] for row in await own.rest.fetch("SELECT key FROM holdfast.idempotency")] == ["k"]


async def test_dedupe_ids_are_forgotten_after_their_window(machine: Machine, make: Make, own: Pools) -> None:
    """By any number of sweeps at once; in batches, and none that has been taken over."""
    ids: list[str | None] = [f"i{n}" for n in range(1_500)]
    short, long = await make("short", dedupe_window_ms=1), await make("long", dedupe_window_ms=3_600_000)
    for policy in (short, long):
        await machine.engine.enqueues.place(policy, Batch(payloads=[b"1"] * 1_500, dedupe_ids=ids), 1_500)
    query = "SELECT count(*) = 1500 FROM holdfast.dedupe WHERE expires_at < clock_timestamp()"
    await until(lambda: own.rest.fetchval(query), "their window has passed")
    machine.policies.forget("short")
    longer = await make("short", dedupe_window_ms=3_600_000)
    await machine.engine.enqueues.place(longer, Batch(payloads=[b"2"], dedupe_ids=["i7"]), 1)
    assert sum(await at_once(own, sweeps.idempotency)) == 1_499
    left = "SELECT count(*) FROM holdfast.dedupe WHERE topic_id = $1"
    assert await own.rest.fetchval(left, short.topic.id) == 1
    assert await own.rest.fetchval(left, long.topic.id) == 1_500


async def test_a_sweep_and_appends_at_once_keep_the_state_true(machine: Machine, make_log: Make, own: Pools) -> None:
    policy = await make_log("busy", ttl_ms=1, cap_records=50)
    await asyncio.gather(
        *(append(machine, policy, 7) for _ in range(40)),
        *(trim(machine.pools, machine.engine) for _ in range(4)),
    )
    row = await own.rest.fetchrow(
        "SELECT count(*) AS n, coalesce(min(seq), 281) AS first FROM holdfast.records WHERE topic = 'busy'"
    )
    left = await state(own, policy)
    assert row is not None
    assert (left.count, left.bytes, left.earliest_seq, left.head_seq) == (row["n"], row["n"], row["first"], 280)
