"""Two verbs on one job at the same time come to what one after the other would have: for every pair of verbs that a job
in some state is open to, and in every order in which their steps can meet.

A statement has three steps: its snapshot is taken, its rows are locked and changed, it is committed. So one verb meets
the other's commit between its snapshot and its locks, which a gate forces: the sessions' now() waits at it, and every
statement here asks for the time before it locks. Or it meets the other's locks, and either that commits, or it is
rolled back. What comes out is held against both orders without any meeting, each of them on a job of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pytest
from asyncpg.pgproto.pgproto import UUID

from app.features.jobs import changes, requeues
from app.features.jobs.changes import Change
from app.kernel import jobs as shown
from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.jobs import Status
from app.kernel.logs.log import TagMatch
from app.kernel.model import HeldJob, Job, LeaseId, Seq
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exit_rows import Spent
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, events, lease_ended, outlived, put, row, take, until
from tests.queue.tallies import tallied
from tests.races.rivals import Rivals

MakeQueue = Callable[..., Awaitable[Policy]]
GATE: Final = 4711
GATES: Final = f"""
CREATE SCHEMA gates;
CREATE FUNCTION gates.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM pg_catalog.pg_advisory_xact_lock_shared({GATE});
    RETURN pg_catalog.now();
END $$
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """One job, in a queue of its own or among its dead letters, and the lease that it has or had."""

    queue: Policy
    dead: Policy
    seq: Seq
    job: Job | None = None

    @property
    def lease(self) -> LeaseId:
        assert self.job is not None
        return UUID(self.job.lease)

    @property
    def holder(self) -> HeldJob:
        return HeldJob(self.seq, self.lease, None)


Act = Callable[[Session, Stage], Awaitable[object]]
Outcome = tuple[object, object, object]  # what the one was answered, what the other, and the job's story


async def claim(db: Session, at: Stage) -> object:
    """Once more after nothing, as an engine claims that was told of a job which it could not lease."""
    jobs = await take(db, at.queue, node="rival") or await take(db, at.queue, node="rival")
    return [job.deliveries for job in jobs]


async def ack(db: Session, at: Stage) -> object:
    return await consumer.ack(db, at.queue.topic, [at.holder])


async def nack(db: Session, at: Stage) -> object:
    back = await consumer.nack(db, at.queue.topic, at.queue.budget, [at.holder], [Return(delay_ms=60_000)])
    return back.done, set(back.spent)


async def extend(db: Session, at: Stage) -> object:
    return set(await consumer.extend(db, at.queue.topic, [at.holder], [90_000]))


async def cancel(db: Session, at: Stage) -> object:
    done = await changes.cancel(db, at.queue.topic, [at.seq])
    return len(done.gone), len(done.marked)


async def retag(db: Session, at: Stage) -> object:
    return (await changes.change(db, at.queue.topic, at.seq, Change(tag="new"))).status


async def delay(db: Session, at: Stage) -> object:
    return (await changes.change(db, at.queue.topic, at.seq, Change(delay_ms=60_000))).status


async def expire(db: Session, at: Stage) -> object:
    return await exits.expire(db, at.queue.topic.name, 10)


async def delete(db: Session, at: Stage) -> object:
    done = await exits.delete(db, at.queue.topic, TagMatch(), after=at.seq - 1, upto=at.seq, limit=1)
    return done.count, done.marked


async def purge(db: Session, at: Stage) -> object:
    return (await shown.purge(db, at.queue.topic, list(Status), after=at.seq - 1, upto=at.seq, limit=1)).count


async def fail(db: Session, at: Stage) -> object:
    """The holder gives it up. Once more, as an engine retires."""
    spent = [Spent(at.seq, at.lease)]
    return await exits.fail(db, at.queue.topic, at.queue.budget, spent) or await exits.fail(
        db, at.queue.topic, at.queue.budget, spent
    )


async def bury(db: Session, at: Stage) -> object:
    """Nobody holds it, and it has no delivery left."""
    spent, to = [Spent(at.seq)], at.dead.topic
    return await exits.move_to_dead_letters(
        db, at.queue.topic, at.queue.budget, spent, to
    ) or await exits.move_to_dead_letters(db, at.queue.topic, at.queue.budget, spent, to)


async def requeue(db: Session, at: Stage) -> object:
    done = await requeues.requeue(db, (at.queue.topic.name, at.queue.topic.id), [at.seq], ttl_ms=0)
    return [one.outcome for one in done]


async def fresh(db: Session, queue: Policy, dead: Policy) -> Stage:
    (seq,) = await put(db, queue, batch())
    return Stage(queue, dead, seq)


async def over(db: Session, queue: Policy, dead: Policy) -> Stage:
    """It has outlived its time to live."""
    (seq,) = await put(db, queue, batch(ttls_ms=[1]))
    await outlived(db, queue)
    return Stage(queue, dead, seq)


async def leased(db: Session, queue: Policy, dead: Policy) -> Stage:
    (seq,) = await put(db, queue, batch())
    (job,) = await take(db, queue)
    return Stage(queue, dead, seq, job)


async def ended(db: Session, queue: Policy, dead: Policy) -> Stage:
    """Its lease has."""
    (seq,) = await put(db, queue, batch())
    (job,) = await take(db, queue, lease_ms=1)
    await lease_ended(db, queue, job)
    return Stage(queue, dead, seq, job)


async def spent(db: Session, queue: Policy, dead: Policy) -> Stage:
    """Its last delivery has ended in silence."""
    (seq,) = await put(db, queue, batch(max_deliveries=[1]))
    (job,) = await take(db, queue, lease_ms=1)
    await lease_ended(db, queue, job)
    return Stage(queue, dead, seq, job)


async def failed(db: Session, queue: Policy, dead: Policy) -> Stage:
    at = await leased(db, queue, dead)
    assert await fail(db, at) == {0}
    return at


async def buried(db: Session, queue: Policy, dead: Policy) -> Stage:
    """It is a dead letter: the stage is its topic, and what comes of it is in the other one."""
    at = await leased(db, queue, dead)
    assert await exits.move_to_dead_letters(db, queue.topic, queue.budget, [Spent(at.seq, at.lease)], dead.topic) == {0}
    letter = await db.fetchval("SELECT seq FROM holdfast.jobs WHERE topic = $1", dead.topic.name)
    return Stage(dead, queue, letter)


STARTS: Final[Mapping[Callable[[Session, Policy, Policy], Awaitable[Stage]], Sequence[Act]]] = {
    fresh: (claim, cancel, retag, delay, delete, purge),
    over: (claim, expire, cancel, delete, purge),
    leased: (ack, nack, extend, cancel, fail, delete, purge),
    ended: (claim, ack, nack, extend, cancel, retag, delete),
    spent: (claim, ack, bury, cancel, purge),
    failed: (requeue, purge, claim),
    buried: (requeue, purge, delete, claim),
}
# These pass over what is locked, and have nothing to answer then. What a requeue has moved, a purge waits for in vain.
PASSES: Final = {claim, expire}
NOTHING: Final[Mapping[Act, object]] = {claim: [], expire: 0, purge: 0, delete: (0, 0), requeue: []}
# These do not ask for the time here, or are functions each of whose statements has a snapshot of its own.
PAST_THE_GATE: Final = {
    (fresh, cancel), (fresh, delete), (over, delete), (failed, purge), (failed, requeue), (buried, purge),
    (buried, delete), (buried, requeue),
}  # fmt: skip


@pytest.fixture
async def gated(rivals: Rivals) -> AsyncIterator[Rivals]:
    """Rivals of whom the other one asks a now() for the time that waits while `one` has the gate."""
    await rivals.observer.execute(GATES)
    await rivals.other.execute("SET search_path = gates, pg_catalog")
    yield rivals
    await rivals.observer.execute("DROP SCHEMA gates CASCADE")


async def story(db: Session, at: Stage) -> object:
    """What became of the job: its row, what the ledger says, and whether there is a dead letter of it. Then they go."""
    found = await row(db, at.queue, at.seq)
    told = None if found is None else (found["state"], found["deliveries"], found["tag"], found["cancelled_at"] is None)
    happened = await events(db, at.queue, at.seq)
    letters = await db.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = $1", at.dead.topic.name)
    for policy in (at.queue, at.dead):
        await shown.purge(db, policy.topic, list(Status), after=0, upto=shown.BIGINT_MAX, limit=10)
    return told, happened, letters


async def in_turn(rivals: Rivals, at: Stage, one: Act, other: Act, *, one_first: bool) -> Outcome:
    """One whole verb after the other."""
    if one_first:
        first = await one(rivals.other, at)
        second = await other(rivals.one, at)
    else:
        second = await other(rivals.one, at)
        first = await one(rivals.other, at)
    return first, second, await story(rivals.observer, at)


async def begun(rivals: Rivals, verb: Awaitable[object]) -> asyncio.Task[object]:
    """The other one's verb, as far as it comes: it is done, or it waits."""
    late = asyncio.ensure_future(verb)
    pid = rivals.other.get_server_pid()

    async def met() -> bool:
        waits = "SELECT $2 = ANY (pg_blocking_pids($1))"  # for what else it waits is over by itself
        return late.done() or bool(await rivals.observer.fetchval(waits, pid, rivals.one.get_server_pid()))

    await until(met, "it waits, or is done")
    return late


async def between_snapshot_and_locks(rivals: Rivals, at: Stage, one: Act, other: Act) -> tuple[bool, Outcome]:
    """And whether it stopped at the gate."""
    await rivals.one.execute("SELECT pg_advisory_lock($1)", GATE)
    late = await begun(rivals, one(rivals.other, at))
    stopped = not late.done()
    second = await other(rivals.one, at)
    await rivals.one.execute("SELECT pg_advisory_unlock($1)", GATE)
    return stopped, (await late, second, await story(rivals.observer, at))


async def at_the_locks(rivals: Rivals, at: Stage, one: Act, other: Act, *, commits: bool) -> Outcome:
    """One waits for the other's locks, or passes what is locked."""
    async with rivals.first(commits=commits):
        second = await other(rivals.one, at)
        late = await begun(rivals, one(rivals.other, at))
    return await late, second if commits else None, await story(rivals.observer, at)


async def untouched(new: Callable[[], Awaitable[Stage]], rivals: Rivals) -> object:
    return await story(rivals.observer, await new())


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.__name__)
async def test_two_verbs_come_to_what_one_after_the_other_would(
    start: Callable[[Session, Policy, Policy], Awaitable[Stage]], topic: str, make_queue: MakeQueue, gated: Rivals
) -> None:
    dead = await make_queue(f"{topic}.dead")
    queue = await make_queue(topic, dead_letter=dead.topic.name)
    wrong: list[str] = []

    async def new() -> Stage:
        return await start(gated.observer, queue, dead)

    async def alone(db: Session, verb: Act) -> tuple[object, object]:
        at = await new()
        return await verb(db, at), await story(gated.observer, at)

    for one in STARTS[start]:
        answered, told = await alone(gated.other, one)
        undone = [
            (answered, None, told),
            *([(NOTHING[one], None, await untouched(new, gated))] if one in PASSES else []),
        ]
        for other in STARTS[start]:
            turns = [await in_turn(gated, await new(), one, other, one_first=first) for first in (True, False)]
            stopped, between = await between_snapshot_and_locks(gated, await new(), one, other)
            assert stopped or (start, one) in PAST_THE_GATE, f"{one.__name__} no longer stops at the gate"
            passed = [(NOTHING[one], *await alone(gated.one, other))] if one in PASSES or other is requeue else []
            for how, found, allowed in (
                ("between snapshot and locks", between, turns),
                ("at its locks", await at_the_locks(gated, await new(), one, other, commits=True), turns + passed),
                ("rolled back", await at_the_locks(gated, await new(), one, other, commits=False), undone),
            ):
                if found not in allowed:
                    wrong.append(f"{one.__name__} meets {other.__name__} {how}: {found}, and in turn {allowed}")
    assert wrong == []
    assert await tallied(gated.one, queue)
    assert await tallied(gated.one, dead)
