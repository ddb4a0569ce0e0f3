"""A storm of producers and workers on fifty groups, in four processes' engines, and what the ledger says of it."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.base.db.pool import open_pools
from app.base.outages import LOST_RACE
from app.errors import Throttled
from app.features.jobs.changes import Changes
from app.features.jobs.requeues import requeue
from app.features.upkeep import sweeps
from app.kernel.claim.consumer import Return
from app.kernel.logs.log import TagMatch
from app.kernel.model import Batch, Connection, Seq
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, new_machine
from tests.queue.calls import held, until
from tests.queue.tallies import tallied
from tests.races.weather import Storm

MakeQueue = Callable[..., Awaitable[Policy]]
SECONDS = 5.0
GROUPS = 50
DEPTH = {False: 80, True: 60}  # with keys, fewer jobs wait: a pending one is updated
MOST_LOST = 5  # races, with keys: see test_key_storm.py; and deletions lock by seq, producers by key
WANTED = {"unblocked", "released", "acked", "dead_lettered", "deleted", "expired", "requeued", "cancelled"}
OF_KEYS = {"updated", "superseded"}
LEAVES = {"acked", "dead_lettered", "failed", "expired", "deleted", "superseded", "cancelled"}
MARKED = "to be cancelled"  # it has left its group; its holder may be at work


def faults(rows: list[asyncpg.Record], group_of: dict[int, str], orderly: set[str]) -> list[str]:
    """What is wrong with a ledger, in the order of its events: a job that was handed out while another of its group was
    out, and one that was handed out for the first time behind a later one (where nothing was requeued)."""
    out: dict[str, int] = {}
    last: dict[str, int] = defaultdict(int)
    wrong: list[str] = []
    for row in rows:
        seq, event = row["seq"], row["event"]
        group = group_of.get(seq)
        if group is None:
            continue
        if event == "claimed":
            if out.get(group, seq) != seq:
                wrong.append(f"{seq} of {group} was handed out beside {out[group]}")
            if group in orderly and seq < last[group]:
                wrong.append(f"{seq} of {group} was handed out behind {last[group]}")
            out[group] = seq
            last[group] = max(last[group], seq)
        elif (event in LEAVES or row["detail"] == MARKED) and out.get(group) == seq:
            del out[group]
    return wrong


def test_the_check_finds_what_is_wrong() -> None:
    def ledger(*told: tuple[int, str]) -> list[asyncpg.Record]:
        return [{"seq": seq, "event": event, "detail": None} for seq, event in told]  # type: ignore[misc]

    groups = {1: "a", 2: "a", 3: "b"}
    fine = ledger((1, "claimed"), (3, "claimed"), (1, "released"), (1, "claimed"), (1, "acked"), (2, "claimed"))
    assert faults(fine, groups, {"a", "b"}) == []
    assert faults(ledger((1, "claimed"), (1, "released"), (2, "claimed")), groups, set()) != []
    assert faults(ledger((2, "claimed"), (2, "acked"), (1, "claimed")), groups, {"a"}) != []


@pytest.mark.alone
@pytest.mark.parametrize("keyed", [False, True])
async def test_a_storm_with_groups(database_url: str, topic: str, make_queue: MakeQueue, keyed: bool) -> None:
    """Producers, for which there is not always room, workers that ack, give back or fall silent, dead letters and their
    requeues, deletions, cancellations and expiry: no error reaches anybody; of no group are two jobs out at once, or
    one before its turn; and none is stuck. With keys, a few statements lose a race, and are tried again; without,
    nobody ever waits in a circle."""
    queue = await make_queue(topic, durable=True, max_deliveries=3, dead_letter=f"{topic}.dead", max_depth=DEPTH[keyed])
    dead = await make_queue(f"{topic}.dead", durable=True)
    before = await _deadlocks(database_url)
    pools = await open_pools(database_url, hot=20, rest=4, prepared_statements=True)
    machines = [new_machine(pools) for _ in range(4)]
    storm = Storm()
    dice = random.Random(11)
    group_of: dict[int, str] = {}
    # Of those whose dead letters come back, no order is asked for, but that there is one at a time.
    names = [f"g{n}" for n in range(GROUPS)]
    orderly = set(names[10:])
    refused = 0

    async def produce() -> None:
        nonlocal refused
        while storm.blows:
            mine: list[str | None] = [dice.choice(names) for _ in range(dice.randrange(1, 8))] + [None]
            dice.shuffle(mine)
            made = Batch(
                payloads=[b"{}"] * len(mine),
                groups=mine,
                tags=[dice.choice([None, None, None, "x"]) for _ in mine],
                priorities=[dice.choice([None, 5]) for _ in mine],
                delays_ms=[dice.choice([None, None, None, 30]) for _ in mine],
                ttls_ms=[dice.choice([None] * 9 + [200]) for _ in mine],
                keys=[dice.choice([None, f"{group}.k", f"{group}.l"]) for group in mine] if keyed else [],
            )
            try:
                seqs = await dice.choice(machines).engine.enqueues.enqueue(queue, made, 2 * len(mine))
                group_of.update((seq, group) for seq, group in zip(seqs, mine, strict=True) if group is not None)
            except Throttled:
                refused += 1
            await asyncio.sleep(dice.uniform(0, 0.02))

    async def work() -> None:
        while storm.blows:
            machine = dice.choice(machines)
            jobs = await machine.claim(queue, 10, wait=0.05, lease_ms=dice.choice([100, 5_000]))
            await asyncio.sleep(dice.uniform(0, 0.02))
            some = sorted((held(job) for job in jobs), key=lambda one: one.seq)
            way, verbs = dice.random(), dice.choice(machines).engine.settlements
            if way < 0.6:
                await verbs.ack(queue, some)
            elif way < 0.95:
                await verbs.nack(queue, some, [Return(delay_ms=dice.choice([0, 0, 50]))] * len(some))

    async def sweep() -> None:
        while storm.blows:
            await sweeps.exhaustion(pools, machines[0].engine)
            await machines[1].engine.exits.expire(queue)
            await machines[2].engine.logs.delete_jobs(queue, None, TagMatch(tag="x"))
            await machines[3].engine.groups.sweep()
            some = [Seq(seq) for seq in list(group_of)[-100:] if dice.random() < 0.05]
            await dice.choice(machines).engine.core(Changes).cancel(queue, some)
            if keyed:
                await sweeps.supersede(pools, machines[2].engine)
                await machines[0].engine.exits.delete_key(queue, "", f"{dice.choice(names)}.k")
            rows = await pools.rest.fetch(
                "SELECT seq FROM holdfast.jobs WHERE topic = $1 AND NOT grp = ANY ($2) ORDER BY seq LIMIT 20",
                dead.topic.name,
                sorted(orderly),
            )
            async with pools.rest.acquire() as db:
                await requeue(db, (dead.topic.name, dead.topic.id), [row["seq"] for row in rows], ttl_ms=0)
            await asyncio.sleep(0.05)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(produce())
                group.create_task(work())
            group.create_task(sweep())
            group.create_task(storm.last(pools, queue, SECONDS, WANTED | (OF_KEYS if keyed else set())))
        async with pools.hot.acquire() as db:
            await until(lambda: _worked_off(machines[0], queue, db), "every job comes out", 60)
            assert await tallied(db, queue)
            assert await tallied(db, dead)
            ledger = await db.fetch(
                "SELECT seq, event::text AS event, detail FROM holdfast.lease_events WHERE topic_id = $1 ORDER BY at",
                queue.topic.id,
            )
            assert faults(ledger, group_of, orderly) == []
            assert refused > 0, "there was always room"
            known = await db.fetchval("SELECT count(*) FROM holdfast.groups WHERE topic_id = $1", queue.topic.id)
            assert known == 0, "groups that are over are forgotten"
        lost = [error for machine in machines for error in machine.log.refused]
        assert [error for error in lost if not isinstance(error, LOST_RACE)] == []
        assert len(lost) <= (MOST_LOST if keyed else 0)
    finally:
        for machine in machines:
            machine.engine.stop()
            await machine.engine.drain()
        await pools.close(5)
    assert keyed or await _deadlocks(database_url) == before


async def _deadlocks(url: str) -> int:
    """How many there were in this database, as those say that have left it."""
    db = await asyncpg.connect(url)
    try:
        count: int = await db.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return count
    finally:
        await db.close()


async def _worked_off(machine: Machine, queue: Policy, db: Connection) -> bool:
    """Complete what there is: whether nothing live is left."""
    jobs = await machine.claim(queue, 500, wait=0.02, lease_ms=5_000)
    await machine.engine.settlements.ack(queue, [held(job) for job in jobs])
    await machine.engine.groups.sweep()
    left: int = await db.fetchval(
        "SELECT count(*) FROM holdfast.jobs WHERE topic = $1 AND state NOT IN ('failed', 'expired')", queue.topic.name
    )
    return left == 0
