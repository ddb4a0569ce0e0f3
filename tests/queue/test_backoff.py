"""How long a returned job waits; how often it gets a delivery back; and which of its deliveries were crashes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from app.kernel.claim import consumer, ordering
from app.kernel.claim.consumer import Return
from app.kernel.model import Budget, Reach
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exit_rows import ExitCounts, Spent
from app.kernel.topics.backoff import MOST_MS, MOST_REFUNDS, Backoff
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, held, lease_ended, outlived, place, put, row, take
from tests.queue.tallies import tallied

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


async def delay_ms(db: Session, backoff: Backoff, deliveries: int) -> int:
    policy = msgspec.json.encode(backoff).decode()
    found: int = await db.fetchval("SELECT holdfast.backoff_ms($1::json, $2)", policy, deliveries)
    return found


@pytest.mark.parametrize(
    ("backoff", "expected", "in_the_end"),
    [
        (Backoff("none"), [0, 0, 0], 0),
        (Backoff("fixed", 500), [500, 500, 500], 500),
        (Backoff("linear", 500), [500, 1_000, 1_500], DAY_MS),
        (Backoff("linear", 500, 1_200), [500, 1_000, 1_200], 1_200),
        (Backoff("linear", 1), [1, 2], DAY_MS),
        (Backoff("linear", MOST_MS), [MOST_MS], DAY_MS),
        (Backoff("exponential", 500), [500, 1_000, 2_000, 4_000, 8_000], DAY_MS),
        (Backoff("exponential", 500, 3_000), [500, 1_000, 2_000, 3_000, 3_000], 3_000),
        (Backoff("exponential", 5_000, 3_000), [3_000, 3_000], 3_000),
        (Backoff("exponential", 1), [1, 2, 4], DAY_MS),
        (Backoff("exponential", MOST_MS), [MOST_MS], DAY_MS),
        (Backoff(), [0], 0),
    ],
)
async def test_the_delay_after_the_nth_delivery(
    db: Session, backoff: Backoff, expected: list[int], in_the_end: int
) -> None:
    """No number of deliveries overflows."""
    assert [await delay_ms(db, backoff, n + 1) for n in range(len(expected))] == expected
    assert await delay_ms(db, backoff, 2**31 - 1) == in_the_end


@pytest.mark.parametrize(("jitter", "least", "low", "high"), [("full", 0, 250, 750), ("equal", 500, 625, 875)])
async def test_jitter_takes_off_up_to_its_share(db: Session, jitter: str, least: int, low: int, high: int) -> None:
    backoff = msgspec.convert({"kind": "linear", "base_ms": 500, "jitter": jitter}, Backoff)
    delays = [await delay_ms(db, backoff, 2) for _ in range(200)]
    assert all(least <= delay <= 1_000 for delay in delays)
    # Some of 200 lie in each quarter's end, but for one run in 10^24.
    assert min(delays) < low
    assert max(delays) > high


async def waits(db: Session, queue: Policy, seq: int) -> int:
    """How long a job was put off when it was last returned, in ms, to the second."""
    found: float = await db.fetchval(
        "SELECT extract(epoch FROM until - at)::float8 FROM holdfast.lease_events "
        "WHERE topic_id = $1 AND seq = $2 AND event = 'released' ORDER BY at DESC LIMIT 1",
        queue.topic.id,
        seq,
    )
    return 1_000 * round(found)


LINEAR = Backoff("linear", HOUR_MS)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize(
    ("back", "expected"),
    [
        (Return(None), 2 * HOUR_MS),
        (Return(0), 0),
        (Return(60_000), 60_000),
        (Return(None, refunds=1), 0),
        (Return(None, refunds=None), 0),
        (Return(60_000, refunds=1), 60_000),
    ],
    ids=str,
)
async def test_a_delay_of_its_own_goes_before_the_backoff(
    db: Session, queue: Policy, key: str | None, back: Return, expected: int
) -> None:
    """And a delivery that is given back has had none to wait for. With a key it is another statement."""
    await place(db, queue, batch(keys=[key]))
    assert await nack(db, queue, Return()) == []
    assert await nack(db, queue, back) == ([1] if back.refunds else [])
    assert await waits(db, queue, 1) == expected
    found = await row(db, queue, 1)
    assert found is not None
    assert found["deliveries"] == (2 if back.refunds == 0 else 1)
    assert await tallied(db, queue)


async def nack(db: Session, queue: Policy, back: Return) -> list[int]:
    """Claim the only job and return it: it, if its delivery was given back and counted."""
    (job,) = await take(db, queue)
    holder = [held(job)]
    returned = await consumer.nack(db, queue.topic, queue.budget, holder, [back], backoff=LINEAR)
    refunded, delays = returned.refunded, returned.delays_ms
    if returned.keyed:
        keyed = await consumer.nack_keyed(db, queue.topic, holder, [back], backoff=LINEAR)
        assert keyed.done == {0}
        refunded, delays = keyed.refunded, keyed.delays_ms
    assert delays == [await waits(db, queue, job.seq)]
    return [job.seq for _ in refunded]


@pytest.mark.parametrize("key", [None, "k"])
async def test_three_deliveries_are_given_back_and_no_more(db: Session, queue: Policy, key: str | None) -> None:
    """Those that the service gives back by itself are not among them."""
    await place(db, queue, batch(keys=[key]))
    for _ in range(5):
        assert await nack(db, queue, Return(refunds=None)) == []
    given_back = [await nack(db, queue, Return(0, refunds=MOST_REFUNDS)) for _ in range(5)]
    assert given_back == [[1], [1], [1], [], []]
    found = await row(db, queue, 1)
    assert found is not None
    assert (found["deliveries"], found["refunds"], found["crashes"]) == (2, 3, 0)
    assert await tallied(db, queue)


async def crash(db: Session, queue: Policy) -> int:
    """A worker dies: its lease ends in silence. How many crashes it was told of when it claimed."""
    (job,) = await take(db, queue, lease_ms=100)
    await lease_ended(db, queue, job)
    return job.crashes


async def test_a_lease_that_ends_in_silence_is_a_crash_and_a_nack_is_none(db: Session, queue: Policy) -> None:
    """And who gives a job up has not crashed; it goes, though deliveries are left."""
    await put(db, queue, batch())
    assert [await crash(db, queue), await crash(db, queue)] == [0, 1]
    (job,) = await take(db, queue)
    assert (job.crashes, job.deliveries) == (2, 3)
    await consumer.nack(db, queue.topic, queue.budget, [held(job)], [Return()])
    (job,) = await take(db, queue)
    assert (job.crashes, job.deliveries) == (2, 4)
    seen = ExitCounts()
    gives_up = [Spent(1, held(job).lease, "no")]
    assert await exits.fail(db, queue.topic, Budget(ends=False, max_deliveries=0), gives_up, seen=seen) == {0}
    found = await row(db, queue, 1)
    assert found is not None
    assert (found["state"], found["crashes"], found["last_error"], seen.suspects) == ("failed", 2, "no", 0)


async def test_each_claim_that_meets_an_ended_lease_counts_it_once(db: Session, queue: Policy) -> None:
    await put(db, queue, batch(3))
    jobs = await take(db, queue, 2, lease_ms=100)
    for job in jobs:
        await lease_ended(db, queue, job)
    reaches = [Reach(lane) for lane in await ordering.read_lanes(db, queue.topic)]
    slots = consumer.Slots([0] * 10, ["n"], [60_000])
    claimed = await consumer.claim(db, queue.topic, queue.budget, reaches, slots)
    assert (claimed.count, claimed.crashes, claimed.suspects) == (3, 2, 0)


LAST = Budget(ends=True, max_deliveries=2)


@pytest.mark.parametrize("way", ["bury", "fail", "expire"])
async def test_the_last_crash_counts_though_nobody_claims_after_it(
    db: Session, queue: Policy, make_queue: Callable[..., Awaitable[Policy]], way: str
) -> None:
    dead = await make_queue(f"{queue.topic.name}.dead")
    await put(db, queue, batch(ttls_ms=[1_500] if way == "expire" else []))
    await crash(db, queue)
    await crash(db, queue)
    seen = ExitCounts()
    if way == "bury":
        assert await exits.move_to_dead_letters(db, queue.topic, LAST, [Spent(1)], dead.topic, seen=seen) == {0}
        found = await row(db, dead, 1)
        assert found is not None
        assert (found["crashes"], found["original_crashes"], found["original_deliveries"]) == (0, 2, 2)
    else:
        if way == "fail":
            assert await exits.fail(db, queue.topic, LAST, [Spent(1)], seen=seen) == {0}
        else:
            await outlived(db, queue)
            assert await exits.expire(db, queue.topic.name, 10, seen=seen) == 1
        found = await row(db, queue, 1)
        assert found is not None
        assert (found["state"], found["crashes"]) == ("failed" if way == "fail" else "expired", 2)
    assert seen.suspects == 1


async def test_a_payload_that_is_written_under_an_ended_lease_counts_the_crash(db: Session, queue: Policy) -> None:
    await place(db, queue, batch(keys=["k"]))
    await crash(db, queue)
    assert (await place(db, queue, batch(keys=["k"]))).updated == [True]
    (job,) = await take(db, queue)
    assert (job.seq, job.deliveries, job.crashes) == (1, 2, 1)
