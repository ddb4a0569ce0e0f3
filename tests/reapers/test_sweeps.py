"""The sweeps: what nobody claims is taken out all the same, by any number of sweepers at once, each job once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.base.pace import Pace
from app.features.feature import Sweep
from app.features.jobs.redrives import Redrives
from app.features.jobs.sweeps import delete_ended
from app.features.upkeep import sweeps
from app.features.upkeep.reapers import Reapers, run_once
from app.features.upkeep.runner import RunOutcome
from app.kernel.claim.consumer import Return
from app.kernel.engine import Engine
from app.kernel.model import Batch
from app.kernel.topics.policy import Policy
from app.main import SWEEPS
from tests.engine.machines import Machine, new_machine
from tests.queue.calls import batch, events, held, lease_ended, outlived, until
from tests.queue.tallies import tallied

Make = Callable[..., Awaitable[Policy]]


async def at_once(own: Pools, sweep: Callable[[Pools, Engine], Awaitable[int]], count: int = 4) -> list[int]:
    """So many processes run a sweep at the same time: how much each did."""
    machines = [new_machine(own) for _ in range(count)]
    return await asyncio.gather(*(sweep(machine.pools, machine.engine) for machine in machines))


async def logged(own: Pools, policy: Policy) -> Counter[str]:
    rows = await own.rest.fetch("SELECT event::text FROM holdfast.lease_events WHERE topic_id = $1", policy.topic.id)
    return Counter(row["event"] for row in rows)


async def test_expiry_marks_what_has_outlived_its_time(machine: Machine, make: Make, own: Pools) -> None:
    short, long = await make("short", ttl_ms=1), await make("long", ttl_ms=3_600_000)
    await machine.enqueue(short, 3)
    (keeps,) = await machine.enqueue(short, Batch(payloads=[b"1"], ttls_ms=[0]))
    await machine.enqueue(long, 2)
    (mine,) = await machine.enqueue(long, Batch(payloads=[b"1"], ttls_ms=[1]))

    async def over() -> bool:
        query = "SELECT count(*) FROM holdfast.jobs WHERE expires_at < clock_timestamp()"
        return bool(await own.rest.fetchval(query) == 4)

    await until(over, "four have outlived their time")
    assert await sweeps.expiry(machine.pools, machine.engine) == 4
    assert await sweeps.expiry(machine.pools, machine.engine) == 0
    assert await events(own.rest, long, mine) == ["enqueued", "expired"]
    assert [job.seq for job in await machine.claim(short, 10)] == [keeps]
    assert len(await machine.claim(long, 10)) == 2


async def test_a_good_lease_shields_its_job_from_expiry(machine: Machine, make: Make, own: Pools) -> None:
    queue = await make("q")
    (seq,) = await machine.enqueue(queue, Batch(payloads=[b"1"], ttls_ms=[1_000]))
    (job,) = await machine.claim(queue)
    await outlived(own.rest, queue)
    assert await sweeps.expiry(machine.pools, machine.engine) == 0
    assert list(await machine.engine.settlements.extend(queue, [held(job)], 100)) == [0]
    await lease_ended(own.rest, queue, job)
    assert await sweeps.expiry(machine.pools, machine.engine) == 1
    assert await machine.engine.settlements.ack(queue, [held(job)]) == set()
    assert await events(own.rest, queue, seq) == ["enqueued", "claimed", "extended", "expired"]


async def test_four_expiry_sweeps_at_once_mark_each_job_once(machine: Machine, make: Make, own: Pools) -> None:
    queue = await make("q", ttl_ms=1)
    await machine.enqueue(queue, batch(2_500))
    await outlived(own.rest, queue)
    assert sum(await at_once(own, sweeps.expiry)) == 2_500
    assert await logged(own, queue) == {"enqueued": 2_500, "expired": 2_500}


@pytest.mark.parametrize("on_exhausted", ["dead_letter", "fail"])
async def test_exhaustion_takes_out_what_nobody_asks_for_again(
    on_exhausted: str, machine: Machine, make: Make, own: Pools
) -> None:
    names = {"dead_letter": "dead"} if on_exhausted == "dead_letter" else {}
    queue = await make("q", max_deliveries=2, on_exhausted=on_exhausted, **names)
    endless = await make("endless", max_deliveries=1, on_exhausted="redeliver")
    spent, once, mine = await machine.enqueue(queue, Batch(payloads=[b"1"] * 3, max_deliveries=[1, None, 0]))
    await machine.enqueue(endless)
    for one in (queue, endless):
        jobs = await machine.claim(one, 3, lease_ms=100)
        await lease_ended(own.rest, one, jobs[-1])
    assert await sweeps.exhaustion(machine.pools, machine.engine) == 1
    assert await sweeps.exhaustion(machine.pools, machine.engine) == 0
    last = {"dead_letter": "dead_lettered", "fail": "failed"}[on_exhausted]
    assert await events(own.rest, queue, spent) == ["enqueued", "claimed", last]
    assert sorted(job.seq for job in await machine.claim(queue, 10)) == [once, mine]
    assert [again.deliveries for again in await machine.claim(endless)] == [2]
    if on_exhausted == "dead_letter":
        dead = await machine.policies.queue("dead")
        assert [job.original_seq for job in await machine.claim(dead, 10)] == [spent]


async def test_four_exhaustion_sweeps_at_once_bury_each_job_once(machine: Machine, make: Make, own: Pools) -> None:
    """Together with claims that meet the same jobs."""
    queue = await make("q", max_deliveries=1, dead_letter="dead")
    await machine.enqueue(queue, batch(1_500, priorities=[n % 3 for n in range(1_500)]))
    last = (await machine.claim(queue, 1_000, lease_ms=200))[-1]
    last = (await machine.claim(queue, 1_000, lease_ms=100) or [last])[-1]
    await lease_ended(own.rest, queue, last)

    async def over() -> bool:
        query = "SELECT bool_and(visible_at < clock_timestamp()) FROM holdfast.jobs WHERE topic = 'q'"
        return bool(await own.rest.fetchval(query))

    await until(over, "every lease has ended")
    claims = [machine.claim(queue, 100) for _ in range(3)]
    sweeping = asyncio.create_task(at_once(own, sweeps.exhaustion))
    assert await asyncio.gather(*claims) == [[], [], []]
    assert sum(await sweeping) <= 1_500
    assert await sweeps.exhaustion(machine.pools, machine.engine) == 0
    dead = await machine.policies.queue("dead")
    assert await logged(own, queue) == {"enqueued": 1_500, "claimed": 1_500, "dead_lettered": 1_500}
    assert await logged(own, dead) == {"enqueued": 1_500}
    origins = await own.rest.fetch("SELECT original_seq FROM holdfast.jobs WHERE topic = 'dead'")
    assert sorted(row["original_seq"] for row in origins) == list(range(1, 1_501))
    counted = "SELECT sum(dead_lettered)::bigint FROM holdfast.tallies WHERE topic_id = $1"
    assert await own.rest.fetchval(counted, queue.topic.id) == 1_500


async def test_an_older_job_of_a_key_ends_with_its_lease_and_lets_the_newer_one_through(
    machine: Machine, make: Make, own: Pools
) -> None:
    queue = await make("q")
    await machine.enqueue(queue, batch(keys=["k"], groups=["g"]))
    [older] = await machine.claim(queue)
    await machine.enqueue(queue, batch(keys=["k"], groups=["g"]))
    await machine.engine.settlements.extend(queue, [held(older)], 1)
    await lease_ended(own.rest, queue, older)
    assert await sweeps.supersede(machine.pools, machine.engine) == 1
    assert [job.seq for job in await machine.claim(queue)] == [older.seq + 1]
    assert await tallied(own.rest, queue)


async def test_what_ended_long_enough_ago_goes(machine: Machine, make: Make, own: Pools) -> None:
    failing, expiring = await make("f", max_deliveries=1, on_exhausted="fail"), await make("e", ttl_ms=1)
    await machine.enqueue(failing, 3)
    failed, kept = await machine.claim(failing, 2)
    assert await machine.engine.settlements.nack(failing, [held(failed)], [Return(error="no")]) == {0}
    await machine.enqueue(expiring, 2)
    await outlived(own.rest, expiring)
    assert await sweeps.expiry(machine.pools, machine.engine) == 2

    assert await delete_ended(machine.pools, machine.engine) == 0, "that was two weeks early"
    for keep in (0, 1):  # for ever, and 1 ms
        await make("f", max_deliveries=1, on_exhausted="fail", dead_ttl_ms=keep)
        await make("e", ttl_ms=1, dead_ttl_ms=keep)
        assert sum(await at_once(own, delete_ended)) == (3 if keep else 0)
    assert await events(own.rest, failing, failed.seq) == ["enqueued", "claimed", "failed", "deleted"]
    assert await logged(own, expiring) == {"enqueued": 2, "expired": 2, "deleted": 2}
    assert await machine.engine.settlements.ack(failing, [held(kept)]) == {0}
    assert len(await machine.claim(failing, 10)) == 1
    assert await tallied(own.rest, failing)
    assert await tallied(own.rest, expiring)


async def test_dead_letters_that_nobody_wanted_go(machine: Machine, make: Make, own: Pools) -> None:
    queue, dead = await make("q", max_deliveries=1, dead_letter="dead"), await make("dead")
    await machine.enqueue(queue, 5)
    jobs = await machine.claim(queue, 4)
    await machine.engine.settlements.nack(queue, [held(job) for job in jobs], [Return(error="no")] * 4)
    await machine.enqueue(dead)  # which is no dead letter
    (kept,) = await machine.claim(dead)
    await machine.engine.core(Redrives).requeue(("dead", dead.topic.id), [2])

    assert await delete_ended(machine.pools, machine.engine) == 0, "that was two weeks early"
    await make("q", max_deliveries=1, dead_letter="dead", dead_ttl_ms=1)
    assert await delete_ended(machine.pools, machine.engine) == 0, "they stand in another topic"
    for keep in (0, 1):
        await make("dead", dead_ttl_ms=keep)
        assert sum(await at_once(own, delete_ended)) == (2 if keep else 0)
    assert await logged(own, dead) == {"enqueued": 5, "claimed": 1, "requeued": 1, "deleted": 2}
    assert await machine.engine.settlements.ack(dead, [held(kept)]) == {0}
    assert await tallied(own.rest, dead)
    assert len(await machine.claim(dead, 10)) == 1
    assert len(await machine.claim(queue, 10)) == 2


async def test_a_sweep_goes_through_every_queue(
    machine: Machine, make: Make, own: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "PAGE", 3)
    queues = [await make(f"q{n}", ttl_ms=1) for n in range(8)]
    for queue in queues:
        await machine.enqueue(queue)
        await outlived(own.rest, queue)
    assert await sweeps.expiry(machine.pools, machine.engine) == 8


async def test_all_sweeps_can_be_run_once_for_cron(machine: Machine, make: Make, own: Pools, url: str) -> None:
    queue = await make("q", ttl_ms=1)
    await machine.enqueue(queue, 2)
    await outlived(own.rest, queue)
    done: dict[str, RunOutcome | Exception] = {}
    by_themselves = [sweep for sweep in SWEEPS if sweep.every]
    assert await run_once(url, by_themselves, done.__setitem__)
    assert list(done) == [sweep.name for sweep in by_themselves]
    assert {name: outcome for name, outcome in done.items() if outcome != RunOutcome(0)} == {
        "expiry": RunOutcome(2),
        "depths": RunOutcome(1),
    }
    done.clear()
    assert await run_once(url, [sweeps.DELETE, sweeps.EXPIRY], done.__setitem__)
    assert list(done.items()) == [("delete", RunOutcome(2)), ("expiry", RunOutcome(0))]
    assert await tallied(own.rest, queue)


async def test_a_sweep_that_fails_is_run_again_and_stops_no_other(machine: Machine) -> None:
    ran: Counter[str] = Counter()

    async def bad(_pools: Pools, _engine: Engine, _pace: Pace) -> int:
        ran["bad"] += 1
        raise ConnectionResetError("gone") if ran["bad"] == 1 else ValueError("a mistake of ours")

    async def good(_pools: Pools, _engine: Engine, _pace: Pace) -> int:
        ran["good"] += 1
        return 1

    reapers = Reapers(machine.engine)
    reapers.start([Sweep("bad", bad, 0.01), Sweep("good", good, 0.01)])

    async def often() -> bool:
        return min(ran["bad"], ran["good"]) >= 4

    await until(often, "both run again and again")
    await reapers.drain()
    after = ran.copy()
    for _ in range(10):
        await asyncio.sleep(0.005)
    assert ran == after, "a sweep ran on"


async def test_the_workers_of_one_service_take_turns(machine: Machine) -> None:
    """None begins before its phase of the interval."""
    first: dict[int, float] = {}
    now = asyncio.get_running_loop().time

    def noting(slot: int) -> Reapers:
        async def note(_pools: Pools, _engine: Engine, _pace: Pace) -> int:
            first.setdefault(slot, now())
            return 0

        reapers = Reapers(machine.engine)
        reapers.start([Sweep(f"noting-{slot}", note, 0.8)], phase=slot / 4)
        return reapers

    began = now()
    workers = [noting(slot) for slot in (3, 2, 1, 0)]

    async def all_have_begun() -> bool:
        return len(first) == 4

    await until(all_have_begun, "each runs")
    for reapers in workers:
        await reapers.drain()
    assert all(first[slot] - began >= 0.8 * slot / 4 for slot in first)
