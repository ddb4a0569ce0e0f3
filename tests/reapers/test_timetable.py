"""Schedules: each time fired once, whoever is there to fire it, and what becomes of times that nobody saw to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.base.db.pool import Pools
from app.base.outages import UNREACHABLE
from app.errors import NotFound, Throttled, TopicNotFound
from app.features.schedules import store as rows
from app.features.schedules.changes import Schedules
from app.features.schedules.fires import LONGEST_WAIT, MOST_MISSED
from app.features.schedules.store import FIELDS, MissedRule, Schedule, ScheduleSpec, of_record
from app.kernel.model import Batch, Connection, HeldJob
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, new_machine
from tests.queue.calls import held

Make = Callable[..., Awaitable[Policy]]
Hold = Callable[[Any], Awaitable[None]]
MINUTE = timedelta(minutes=1)


def schedules(machine: Machine) -> Schedules:
    """What a machine does with them."""
    return Schedules(machine.engine)


class Clock:
    """A schedule, `* * * * *` unless it is told otherwise, and what time it is for the machines that look."""

    def __init__(self, machine: Machine, topic: str, make: Make) -> None:
        self.machine = machine
        self.name = f"s-{topic}"
        self._topic = topic
        self._make = make
        self.at = self.first = datetime.now(UTC)

    async def queue(self, name: str = "", **settings: object) -> Policy:
        """Make a queue."""
        return await self._make(self._topic + name, **settings)

    async def put(self, policy: Policy, cron: str = "* * * * *", **wanted: Any) -> Schedule:
        """Make it, or replace it. `first` is when it is due then."""
        batch = wanted.pop("batch", Batch(payloads=[b'{"a":1}']))
        payload, fields = of_record(batch)
        made = ScheduleSpec(policy.topic.name, cron, "UTC", MissedRule.ONCE, payload, fields)
        kept, _ = await schedules(self.machine).put(self.name, replace(made, **wanted))
        if kept.next_fire is not None:
            self.at = self.first = kept.next_fire
        return kept

    async def get(self) -> Schedule:
        return await schedules(self.machine).get(self.name)

    async def look(self, after: timedelta = timedelta(), machine: Machine | None = None) -> int:
        """Let a machine look, so long after the time that it was due for: how many jobs that made."""
        self.at += after
        return (await schedules(machine or self.machine).fires.run_once(self.at)).fired


@pytest.fixture
async def clock(machine: Machine, topic: str, make: Make) -> AsyncIterator[Clock]:
    yield Clock(machine, topic, make)
    for one in await schedules(machine).page("", "", 100):
        await schedules(machine).delete(one.name)


@pytest.fixture
def before_settling(monkeypatch: pytest.MonkeyPatch) -> Callable[[Hold], None]:
    """Lets something happen, once, in the transaction of a fire: after its jobs are in, before the schedule moves."""
    settle = rows.settle

    def prepare(hold: Hold) -> None:
        async def held(db: Connection, outcomes: Sequence[rows.FireOutcome]) -> None:
            monkeypatch.setattr(rows, "settle", settle)
            await hold(db)
            await settle(db, outcomes)

        monkeypatch.setattr(rows, "settle", held)

    return prepare


async def fired(machine: Machine, policy: Policy, most: int = 2_000) -> list[dict[str, Any]]:
    """The metadata of the jobs that a queue holds, claimed."""
    found = []
    while jobs := await machine.claim(policy, min(most, 1_000)):
        found += [msgspec.json.decode(job.metadata or "null") for job in jobs]
    return found


async def test_a_time_makes_one_job_that_says_so(machine: Machine, clock: Clock) -> None:
    policy = await clock.queue()
    batch = Batch(payloads=[b'{"a": 1.0}'], tags=["t"], metadata=['{"k": 1.0}'], priorities=[3], producers=["p"])
    await clock.put(policy, batch=batch)
    assert await clock.look(-timedelta(seconds=1)) == 0
    assert await clock.look(timedelta(seconds=1.2)) == 1
    assert await clock.look() == 0
    (job,) = await machine.claim(policy, 10)
    assert (job.payload, job.tag) == (b'{"a": 1.0}', "t")
    time = clock.first.isoformat().replace("+00:00", "Z")
    assert job.metadata == f'{{"k": 1.0,"$schedule":"{clock.name}","$fire_at":"{time}"}}'
    after = await clock.get()
    assert (after.fires, after.last_fire, after.last_seq) == (1, clock.first, job.seq)
    assert after.next_fire == clock.first + MINUTE


async def test_two_processes_at_one_time_make_one_job(
    machine: Machine,
    own: Pools,
    clock: Clock,
    before_settling: Callable[[Hold], None],
) -> None:
    """The second has seen that it is due; the first fires it before the second locks it, and while it does."""
    policy = await clock.queue()
    await clock.put(policy)
    second, third = new_machine(own), new_machine(own)
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def first_is_done() -> None:
        assert await clock.look() == 1

    async def hold(_db: Connection) -> None:
        inside.set()
        await go_on.wait()

    # Overtaken between its look and its lock: what it locks is looked at anew, and due no more.
    second.log.after["due"] = first_is_done
    assert await clock.look(machine=second) == 0
    del second.log.after["due"]
    # And between the other's lock and its commit: what is locked is left alone.
    before_settling(hold)
    slow = asyncio.create_task(clock.look(MINUTE, second))
    await asyncio.wait_for(inside.wait(), 30)
    assert await asyncio.wait_for(clock.look(machine=third), 30) == 0
    go_on.set()
    assert await slow == 1
    assert await clock.look(machine=third) == 0
    assert len(await fired(machine, policy)) == 2
    assert (await clock.get()).fires == 2


async def test_a_fleet_makes_each_job_once(machine: Machine, own: Pools, clock: Clock) -> None:
    """Five processes look at once, time after time, at thirty schedules of two topics."""
    queues = [await clock.queue("a"), await clock.queue("b", max_depth=1_000)]
    every = [Clock(machine, f"{clock.name}-{n}", clock.queue) for n in range(30)]
    for n, one in enumerate(every):
        await one.put(queues[n % 2])
    fleet = [new_machine(own) for _ in range(5)]
    at = max(one.at for one in every)
    for minute in range(4):
        now = at + MINUTE * minute
        for _ in range(2):
            await asyncio.gather(*(schedules(process).fires.run_once(now) for process in fleet))
    made = [(one["$schedule"], one["$fire_at"]) for queue in queues for one in await fired(machine, queue)]
    assert len(made) == len(set(made))
    for one in every:
        kept = await one.get()
        assert kept.next_fire == at + MINUTE * 4
        assert [name for name, _ in made].count(one.name) == kept.fires >= 4


async def test_a_process_that_is_killed_in_between_has_done_nothing(
    machine: Machine,
    own: Pools,
    clock: Clock,
    before_settling: Callable[[Hold], None],
) -> None:
    """The job is in, the schedule is not moved on, and the process's connection dies: neither is there."""
    policy = await clock.queue()
    kept = await clock.put(policy)
    doomed = new_machine(own)

    async def die(db: Any) -> None:
        pid = db.get_server_pid()
        assert await db.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = $1", policy.topic.name) == 1
        await own.rest.execute("SELECT pg_terminate_backend($1, 5000)", pid)

    before_settling(die)
    with pytest.raises(UNREACHABLE):
        await clock.look(machine=doomed)
    assert await fired(machine, policy) == []
    assert await clock.get() == kept
    assert await clock.look() == 1
    assert len(await fired(machine, policy)) == 1


async def test_a_clock_that_steps_back_fires_nothing_twice(machine: Machine, clock: Clock) -> None:
    policy = await clock.queue()
    await clock.put(policy)
    first, ahead = clock.first, timedelta(hours=1)
    assert await clock.look(ahead) == 1
    for _ in range(3):
        assert await clock.look(-MINUTE * 15) == 0
    # Nor does it when it is paused and resumed then, or its expression is another one.
    await schedules(machine).pause(clock.name, paused=True)
    resumed = await schedules(machine).pause(clock.name, paused=False)
    assert resumed.next_fire == first + ahead + MINUTE
    changed = await clock.put(policy, "*/2 * * * *")
    assert changed.next_fire is not None
    assert changed.next_fire > first + ahead
    assert len(await fired(machine, policy)) == 1


@pytest.mark.parametrize(
    ("missed", "made"), [(MissedRule.SKIP, [10]), (MissedRule.ONCE, [10]), (MissedRule.ALL, list(range(11)))]
)
async def test_what_was_missed(machine: Machine, clock: Clock, missed: MissedRule, made: list[int]) -> None:
    """Nobody looks for ten minutes and a half; the last time is not a minute old then."""
    policy = await clock.queue()
    await clock.put(policy, missed=missed)
    assert await clock.look(MINUTE * 10.5) == len(made)
    times = [datetime.fromisoformat(one["$fire_at"]) for one in await fired(machine, policy)]
    assert times == [clock.first + MINUTE * minute for minute in made]
    after = await clock.get()
    assert after.next_fire == clock.first + MINUTE * 11
    assert (after.fires, after.last_fire) == (len(made), times[-1])


async def test_a_time_that_is_late_by_more_than_a_minute_is_skipped(machine: Machine, clock: Clock) -> None:
    policy = await clock.queue()
    await clock.put(policy, "0 * * * *", missed=MissedRule.SKIP)
    assert await clock.look(MINUTE * 1.01) == 0
    assert (await clock.get()).next_fire == clock.first + MINUTE * 60
    assert await clock.look(MINUTE * 59.5) == 1
    assert len(await fired(machine, policy)) == 1


async def test_no_more_than_a_thousand_are_made_up_for(machine: Machine, clock: Clock) -> None:
    policy = await clock.queue()
    await clock.put(policy, missed=MissedRule.ALL)
    await clock.look(timedelta(days=365))
    while await clock.look():
        pass
    times = [datetime.fromisoformat(one["$fire_at"]) for one in await fired(machine, policy)]
    last = clock.first + timedelta(days=365)
    assert times == [last - MINUTE * (MOST_MISSED - 1 - n) for n in range(MOST_MISSED)]


async def test_what_is_paused_rests_and_misses_nothing(machine: Machine, clock: Clock) -> None:
    policy = await clock.queue()
    await clock.put(policy, missed=MissedRule.ALL)
    paused = await schedules(machine).pause(clock.name, paused=True)
    assert (paused.paused, paused.next_fire) == (True, None)
    assert await clock.look(MINUTE * 10) == 0
    assert (await clock.put(policy, missed=MissedRule.ALL)).paused, "a PUT that does not say leaves it so"
    resumed = await schedules(machine).pause(clock.name, paused=False)
    assert resumed.next_fire is not None
    assert resumed.next_fire - clock.first <= MINUTE, "it goes on from now, by the database's clock"
    assert not (await clock.put(policy, paused=False)).paused
    assert (await clock.put(policy, paused=True)).paused


async def test_a_topic_that_was_deleted_gets_nothing_until_it_is_there_again(
    machine: Machine, own: Pools, clock: Clock
) -> None:
    policy = await clock.queue()
    await clock.put(policy)
    await store.delete(own.rest, policy.topic.name, if_empty=False)  # as another process does: this one's policy is old
    for _ in range(2):
        assert await clock.look() == 0
    gone = await clock.get()
    assert (gone.error_code, gone.fires, gone.next_fire) == ("topic_not_found", 0, clock.first)
    with pytest.raises(TopicNotFound):
        await machine.policies.get(policy.topic.name)
    with pytest.raises(TopicNotFound):
        await schedules(machine).run(clock.name)
    again = await clock.queue()
    assert await clock.look(timedelta(seconds=29)) == 0, "a refusal is tried again after half a minute"
    assert await clock.look(MINUTE) == 1
    back = await clock.get()
    assert (back.error_code, back.fires) == (None, 1)
    assert len(await fired(machine, again)) == 1


async def test_a_queue_that_is_full_gets_it_once_there_is_room(machine: Machine, clock: Clock) -> None:
    policy = await clock.queue(max_depth=2)
    await clock.put(policy, missed=MissedRule.ALL)
    assert await clock.look(MINUTE * 4) == 2
    full = await clock.get()
    assert (full.error_code, full.next_fire) == ("throttled", clock.first + MINUTE * 2)
    with pytest.raises(Throttled):
        await schedules(machine).run(clock.name)
    jobs = await machine.claim(policy, 10)
    await machine.engine.settlements.ack(policy, [HeldJob(job.seq, None, "worker") for job in jobs])
    assert await clock.look(MINUTE) == 2
    there = await clock.get()
    assert (there.fires, there.next_fire) == (4, clock.first + MINUTE * 4)


async def test_others_do_not_wait_for_one_that_is_refused(machine: Machine, clock: Clock) -> None:
    full, free = await clock.queue(max_depth=1), await clock.queue("free")
    three = [Clock(machine, policy.topic.name + str(n), clock.queue) for n, policy in enumerate((full, full, free))]
    for one, policy in zip(three, (full, full, free), strict=True):
        await one.put(policy)
    assert await three[0].look() == 2
    assert [(await one.get()).fires for one in three] == [1, 0, 1]


async def test_run_now(machine: Machine, clock: Clock) -> None:
    policy = await clock.queue()
    await clock.put(policy, "0 0 1 1 *", paused=True)
    made = await schedules(machine).run(clock.name)
    (job,) = await machine.claim(policy, 10)
    assert job.seq == made.seq
    ran = await clock.get()
    assert (ran.fires, ran.last_seq, ran.last_fire, ran.next_fire) == (1, made.seq, made.time, None)
    with pytest.raises(NotFound):
        await schedules(machine).run("nothing")


async def test_a_key_keeps_one_job_waiting(machine: Machine, clock: Clock) -> None:
    policy = await clock.queue()
    await clock.put(policy, batch=Batch(payloads=[b"1"], keys=["k"]))
    for _ in range(3):
        assert await clock.look() == 1
        clock.at += MINUTE
    (job,) = await machine.claim(policy, 10)
    assert job.key == "k"


async def test_a_fifo_topic_gets_a_job_for_each_time(machine: Machine, clock: Clock) -> None:
    """Their payloads are one, and yet none is a duplicate of another."""
    policy = await clock.queue(".fifo")
    await clock.put(policy, missed=MissedRule.ALL, batch=Batch(payloads=[b"1"], groups=["g"]))
    assert [await clock.look(), await clock.look(MINUTE), await clock.look(MINUTE * 2)] == [1, 1, 2]
    made = await schedules(machine).run(clock.name)
    seqs = []
    for _ in range(5):
        (job,) = await machine.claim(policy, 10)
        await machine.engine.settlements.ack(policy, [held(job)])
        seqs.append(job.seq)
    assert seqs == sorted(set(seqs))
    kept = await clock.get()
    assert (kept.fires, kept.last_seq, made.seq) == (5, seqs[-1], seqs[-1])


async def test_a_fire_that_is_a_duplicate_makes_none_and_counts_for_none(machine: Machine, clock: Clock) -> None:
    policy = await clock.queue(dedupe_window_ms=3_600_000)
    await clock.put(policy, batch=Batch(payloads=[b"1"], dedupe_ids=["mine"]))
    assert [await clock.look(), await clock.look(MINUTE)] == [1, 0]
    (job,) = await machine.claim(policy, 10)
    assert (await schedules(machine).run(clock.name)).seq == job.seq
    after = await clock.get()
    assert (after.fires, after.last_fire, after.last_seq) == (1, clock.first, job.seq)
    assert (after.next_fire, after.error_code) == (clock.first + MINUTE * 2, None)


async def test_it_sleeps_until_the_next_is_due(machine: Machine, clock: Clock) -> None:
    look = schedules(machine).fires.run_once
    assert (await look()).wait == LONGEST_WAIT
    await clock.put(await clock.queue(), "* * * * *")
    assert (await look(clock.first - timedelta(seconds=7))).wait == pytest.approx(7)
    assert (await look(clock.first - timedelta(seconds=45))).wait == LONGEST_WAIT
    before = len(machine.log.sent)
    await look(clock.first - timedelta(seconds=45))
    assert [name for name, _ in machine.log.sent[before:]] == ["due"], "a look at nothing is one statement"


def test_all_that_a_record_can_have_is_kept() -> None:
    assert set(FIELDS.values()) == set(Batch.__struct_fields__) - {"payloads", "run_ats"}
