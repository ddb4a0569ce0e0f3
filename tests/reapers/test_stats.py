"""topic_stats: what the ledger says of each minute, told once the minute has closed, and told right."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from app.base.db.pool import Pools
from app.features.stats import sweeps as stats
from app.features.upkeep import sweeps
from app.kernel.claim.consumer import Return
from app.kernel.model import Batch
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, new_machine
from tests.queue.calls import batch, held, lease_ended, outlived

Make = Callable[..., Awaitable[Policy]]
COUNTS = (
    *("enqueued", "completed", "failed", "retried", "dead_lettered", "expired", "cancelled"),
    *("wait_count", "processing_count"),
)


@pytest.fixture(autouse=True)
async def anew(own: Pools) -> None:
    """Minutes are told from five minutes ago on."""
    await own.rest.execute(
        "UPDATE holdfast.topic_stats_progress SET filled_to = date_trunc('minute', now()) - interval '5 min', "
        "guessed_to = '-infinity', marked_at = now(), mark = pg_snapshot_xmax(pg_current_snapshot())"
    )


async def later(own: Pools) -> None:
    """Two minutes go by after the mark."""
    await own.rest.execute("UPDATE holdfast.topic_stats_progress SET marked_at = marked_at + interval '2 min'")


async def told(own: Pools) -> int:
    """What has happened by now is told: two runs, with minutes between them."""
    machine = new_machine(own)
    await stats.fill_minutes(machine.pools, machine.engine)
    await later(own)
    return await stats.fill_minutes(machine.pools, machine.engine)


async def rows(own: Pools, policy: Policy) -> list[dict[str, Any]]:
    found = await own.rest.fetch(
        "SELECT * FROM holdfast.topic_stats WHERE topic_id = $1 ORDER BY minute, tenant", policy.topic.id
    )
    return [dict(row) for row in found]


async def sums(own: Pools, policy: Policy, tenant: str | None = None) -> dict[str, int]:
    """Counts over all minutes, those that are not 0."""
    found = [row for row in await rows(own, policy) if tenant is None or row["tenant"] == tenant]
    all_of = {name: sum(row[name] for row in found) for name in COUNTS}
    return {name: count for name, count in all_of.items() if count}


def nearest_rank(values: list[int], percent: int) -> int:
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


async def test_every_end_of_a_job_is_counted_as_what_it_is(machine: Machine, make: Make, own: Pools) -> None:
    queue = await make("q", max_deliveries=2, dead_letter="q.dlq")
    await machine.enqueue(queue, batch(6, tenants=["acme"] * 6))
    done, again, dead, *_ = await machine.claim(queue, 6)
    settle = machine.engine.settlements
    await settle.ack(queue, [held(done)])
    await settle.nack(queue, [held(again), held(dead)], [Return()] * 2)
    (again2, dead2) = sorted(await machine.claim(queue, 2), key=lambda job: job.seq)
    await settle.ack(queue, [held(again2)])
    await settle.nack(queue, [held(dead2)], [Return()])
    await told(own)
    assert await sums(own, queue) == await sums(own, queue, "acme") == {
        "enqueued": 6, "completed": 2, "failed": 1, "retried": 2, "dead_lettered": 1,
        "wait_count": 8, "processing_count": 2,
    }  # fmt: skip
    letters = await machine.policies.queue("q.dlq")
    assert await sums(own, letters) == {"enqueued": 1}


async def test_expired_and_failed_jobs_are_counted(machine: Machine, make: Make, own: Pools) -> None:
    queue = await make("q", max_deliveries=1, on_exhausted="fail")
    await machine.enqueue(queue, batch(3, ttls_ms=[1, None, 1], tenants=["a", "b", "c"], keys=[None, None, "k"]))
    await outlived(own.rest, queue)
    await machine.enqueue(queue, batch(keys=["k"], tenants=["c"]))  # which finds the third one expired
    assert await sweeps.expiry(machine.pools, machine.engine) == 1
    (job,) = await machine.claim(queue, 2, lease_ms=100, tenants=["b"])
    await lease_ended(own.rest, queue, job)
    await sweeps.exhaustion(machine.pools, machine.engine)
    await told(own)
    assert await sums(own, queue, "a") == {"enqueued": 1, "expired": 1}
    assert await sums(own, queue, "b") == {"enqueued": 1, "failed": 1, "wait_count": 1}
    assert await sums(own, queue, "c") == {"enqueued": 2, "expired": 1}


async def test_waits_begin_when_a_job_can_be_had(machine: Machine, make: Make, own: Pools) -> None:
    """At its enqueueing, at the end of its delay, or when it comes back: against the ledger's other times."""
    queue = await make("q")
    await machine.enqueue(queue, Batch(payloads=[b"1"] * 2, delays_ms=[None, 150]))
    claims = len(await machine.claim(queue, 1, lease_ms=100))
    while claims < 3:  # the delayed one, and the first again, whose lease ends
        claims += len(await machine.claim(queue, 2, wait=5))
    await told(own)
    expected: list[int] = []
    at: dict[int, datetime] = {}
    for event in await own.rest.fetch(
        "SELECT * FROM holdfast.lease_events WHERE topic_id = $1 ORDER BY at", queue.topic.id
    ):
        if event["event"] == "claimed":
            expected.append((event["at"] - at[event["seq"]]) // timedelta(milliseconds=1))
        at[event["seq"]] = event["until"] or event["at"]
    found = await rows(own, queue)
    assert sum(row["wait_count"] for row in found) == len(expected) == 3
    if len(found) == 1:  # they were in one minute
        assert [found[0][f"wait_p{percent}_ms"] for percent in (50, 95, 99)] == [
            pytest.approx(nearest_rank(expected, percent), abs=5) for percent in (50, 95, 99)
        ]


async def test_percentiles_and_buckets_are_those_of_the_events(machine: Machine, make: Make, own: Pools) -> None:
    queue = await make("q")
    await machine.enqueue(queue, batch(200, tenants=["a", "b"] * 100))
    settle = machine.engine.settlements
    while jobs := await machine.claim(queue, 7):
        for job in jobs:
            await settle.ack(queue, [held(job)])
    await told(own)
    claimed: dict[int, datetime] = {}
    took: dict[tuple[datetime, str], list[int]] = defaultdict(list)
    for event in await own.rest.fetch(
        "SELECT * FROM holdfast.lease_events WHERE topic_id = $1 ORDER BY at", queue.topic.id
    ):
        if event["event"] == "claimed":
            claimed[event["seq"]] = event["at"]
        elif event["event"] == "acked":
            minute = event["at"].replace(second=0, microsecond=0)
            took[minute, event["tenant"]].append((event["at"] - event["began_at"]) // timedelta(milliseconds=1))
            assert event["began_at"] <= claimed[event["seq"]], "the job's own leased_at, an instant before its event"
    found = {(row["minute"], row["tenant"]): row for row in await rows(own, queue) if row["processing_count"]}
    assert {place: row["processing_count"] for place, row in found.items()} == {
        place: len(values) for place, values in took.items()
    }
    for place, values in took.items():
        row = found[place]
        for percent in (50, 95, 99):
            assert row[f"processing_p{percent}_ms"] == nearest_rank(values, percent)
        assert sum(row["processing_counts"]) == len(values)


@pytest.mark.parametrize("for_long", [False, True])
async def test_a_minute_waits_for_transactions_that_may_still_write_in_it(
    machine: Machine, make: Make, own: Pools, url: str, monkeypatch: pytest.MonkeyPatch, *, for_long: bool
) -> None:
    """One that stays open for long it tells as it is, and corrects it."""
    queue = await make("q")
    await machine.enqueue(queue, 1)
    slow = await asyncpg.connect(url)
    try:
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute("INSERT INTO holdfast.inbox (topic, payload_text) VALUES ('q', '1')")
        assert await told(own) == 0  # it is open: nothing is told
        assert await rows(own, queue) == []
        if for_long:
            monkeypatch.setattr(stats, "GUESS_AFTER", timedelta(minutes=-2))  # the time has come already
            assert await stats.fill_minutes(machine.pools, machine.engine) > 0
            assert await sums(own, queue) == {"enqueued": 1}
            assert await stats.fill_minutes(machine.pools, machine.engine) == 0, "a guess is made once"
        await transaction.commit()
        assert await stats.fill_minutes(machine.pools, machine.engine) > 0
        assert await sums(own, queue) == {"enqueued": 2}
    finally:
        slow.terminate()


async def test_four_at_once_tell_each_minute_once(machine: Machine, make: Make, own: Pools) -> None:
    queue = await make("q")
    await machine.enqueue(queue, 300)
    while jobs := await machine.claim(queue, 100):
        await machine.engine.settlements.ack(queue, [held(job) for job in jobs])
    await stats.fill_minutes(machine.pools, machine.engine)
    await later(own)
    machines = [new_machine(own) for _ in range(4)]
    moved = await asyncio.gather(*(stats.fill_minutes(one.pools, one.engine) for one in machines))
    since = "date_trunc('minute', now()) - interval '5 min'"
    there = await own.rest.fetchval(f"SELECT count(*) FROM holdfast.topic_stats WHERE minute >= {since}")
    assert 0 < sum(moved) <= there  # a slow machine has told some of them before
    assert await sums(own, queue) == {"enqueued": 300, "completed": 300, "wait_count": 300, "processing_count": 300}
    await own.rest.execute("UPDATE holdfast.topic_stats_progress SET filled_to = filled_to - interval '5 min'")
    await stats.fill_minutes(machine.pools, machine.engine)  # the same again changes nothing
    assert await sums(own, queue) == {"enqueued": 300, "completed": 300, "wait_count": 300, "processing_count": 300}


@pytest.mark.parametrize(
    "before",
    [
        "filled_to = filled_to - interval '3 days'",  # nothing happened: it is passed in long steps
        "mark = '4000000000'",  # as pg_dump restores it: of another cluster, yet to come here
    ],
)
async def test_what_lies_before_holds_nothing_up(machine: Machine, make: Make, own: Pools, before: str) -> None:
    queue = await make("q")
    await machine.enqueue(queue, 3)
    await own.rest.execute(f"UPDATE holdfast.topic_stats_progress SET {before}")
    await told(own)
    assert await sums(own, queue) == {"enqueued": 3}
    filled = await own.rest.fetchval("SELECT filled_to > now() FROM holdfast.topic_stats_progress")
    assert filled is True


async def test_old_minutes_are_forgotten(machine: Machine, make: Make, own: Pools) -> None:
    kept, old = await make("kept"), await make("old")
    for queue in (kept, old):
        await machine.enqueue(queue, 1)
    await told(own)
    await own.rest.execute(
        "UPDATE holdfast.topic_stats SET minute = minute - $1::interval WHERE topic_id = $2", stats.KEPT, old.topic.id
    )
    machines = [new_machine(own) for _ in range(4)]
    assert sum(await asyncio.gather(*(stats.forget(one.pools, one.engine) for one in machines))) == 1
    assert len(await rows(own, kept)) == 1
    assert await rows(own, old) == []


async def test_a_bucket_is_no_wider_than_an_eighth(own: Pools) -> None:
    spread = [*range(3_000), *(2**n + d for n in range(12, 44) for d in (-1, 0, 1, 777))]
    found = await own.rest.fetch(
        "SELECT ms, b, holdfast.bucket_top(b) AS top, holdfast.bucket_top(b - 1) AS below "
        "FROM unnest($1::bigint[]) AS ms CROSS JOIN LATERAL holdfast.duration_bucket(ms) AS b",
        spread,
    )
    assert [row["ms"] for row in found] == spread
    for row in found:
        assert row["below"] < row["ms"] <= row["top"] if row["b"] else row["ms"] == 0
        assert row["top"] <= row["ms"] * 9 / 8
