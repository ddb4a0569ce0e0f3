"""Batches that overlap, in any order: every verb locks by seq, so that none deadlocks with another."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from app.features.upkeep import sweeps
from app.kernel.claim.consumer import Return
from app.kernel.counts import inspector
from app.kernel.model import HeldJob, Seq, Topic
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import Session, until

MakeQueue = Callable[..., Awaitable[Policy]]
NODE = "worker"
ROUNDS = 100
CLIENTS = 8


async def test_overlapping_batches_of_every_verb(topic: str, make_queue: MakeQueue, processes: list[Machine]) -> None:
    queue = await make_queue(topic, durable=True, max_deliveries=50, dead_letter=f"{topic}.dead")
    await processes[0].enqueue(queue, 150)
    clients = [_client(processes, queue, number) for number in range(CLIENTS)]
    ends = await asyncio.gather(*clients, return_exceptions=True)
    refused = Counter(type(error).__name__ for machine in processes for error in machine.log.refused)
    assert refused == Counter()
    assert ends == [None] * CLIENTS
    sent = processes[0].log
    assert min(sent.count(verb) for verb in ("extend", "nack", "ack", "claim")) > 0


async def test_processes_that_fold_the_same_topics_in_other_orders(connect: Callable[[], Awaitable[Session]]) -> None:
    """Each has the topics in the order in which it came to use them. Somebody else stops both of them half way."""
    one, other, holder = await connect(), await connect(), await connect()
    first, *between, last = range(900_001, 900_005)
    ids = [first, *between, last]
    await holder.execute("INSERT INTO holdfast.tallies (topic_id, ready) SELECT unnest($1::integer[]), 7", ids)
    upto = await holder.fetchval("SELECT max(id) FROM holdfast.tallies")

    async def fold(db: Session, *topics: int) -> None:
        await inspector.fold(db, [(Topic(f"t{number}", number, 0), 0) for number in topics], upto)

    async with holder.transaction():
        await holder.execute("SELECT 1 FROM holdfast.tallies WHERE topic_id = ANY ($1) FOR UPDATE", between)
        folds = [asyncio.create_task(fold(one, *ids)), asyncio.create_task(fold(other, *reversed(ids)))]
        for session in (one, other):
            await _waits(holder, session)
    await asyncio.gather(*folds)
    rows = await holder.fetch("SELECT topic_id, ready FROM holdfast.tallies WHERE topic_id = ANY ($1) ORDER BY 1", ids)
    assert [tuple(row) for row in rows] == [(number, 7) for number in ids]
    await holder.execute("DELETE FROM holdfast.tallies WHERE topic_id = ANY ($1)", ids)


async def _waits(observer: Session, session: Session) -> None:
    async def blocked() -> bool:
        return bool(await observer.fetchval("SELECT pg_blocking_pids($1) <> '{}'", session.get_server_pid()))

    await until(blocked, "it waits")


async def _client(machines: list[Machine], queue: Policy, number: int) -> None:
    """Verbs on the same jobs as everybody else's: jobs are held by node, and all nodes are called the same. Once the
    database has refused one, there is no need to go on."""
    machine, random_ = machines[number % len(machines)], random.Random(number)
    verbs = machine.engine.settlements
    for turn in range(ROUNDS):
        if any(one.log.refused for one in machines):
            return
        seqs = random_.sample(range(1, 151), 40)
        held = [HeldJob(Seq(seq), None, NODE) for seq in seqs]
        match random_.randrange(10):
            case 0 | 1 | 2 | 3:
                await verbs.extend(queue, held, 60_000)
            case 4 | 5:
                await verbs.nack(queue, held, [Return()] * len(held))
            case 6:
                await verbs.ack(queue, held[:2])
            case 7:
                await machine.engine.exits.expire(queue)
            case _:
                await machine.claim(queue, 60, node=NODE)
        if turn % 20 == 19 and number == 0:
            await sweeps.exhaustion(machine.pools, machine.engine)


async def test_the_batches_of_all_callers_are_locked_in_one_order(machine: Machine, queue: Policy) -> None:
    seqs = await machine.enqueue(queue, 30)
    assert len(await machine.claim(queue, 30)) == 30
    parts = [[HeldJob(seq, None, NODE) for seq in part] for part in (seqs[::3], seqs[1::3], seqs[2::3])]
    answers = await asyncio.gather(*(machine.engine.settlements.ack(queue, part[::-1]) for part in parts))
    assert answers == [set(range(10))] * 3
    orders = [seqs for _topic, seqs, *_ in machine.log.arguments("ack")]
    assert orders == [sorted(seqs)]
