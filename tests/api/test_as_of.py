"""What a queue looked like: the ledger, asked about past instants, against a model that replays the recorded calls."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from random import Random

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.api.process import Process
from tests.api.replay import MARGIN, MAX_DELIVERIES, Replay, requeue

# The states of jobs that are listed, and how the counts call them.
COUNTED = {
    **{word: word for word in ("ready", "scheduled", "blocked", "failed", "expired")},
    **{"leased": "in_flight", "dead_lettered": "dead"},
}


async def as_of(queue: Topic, instant: float) -> Body:
    at = datetime.fromtimestamp(instant, UTC).isoformat()
    return accepted(await queue.http.get(f"{queue.path}/asof", params={"at": at}))


async def jobs_as_of(queue: Topic, instant: float, **query: object) -> Body:
    at = datetime.fromtimestamp(instant, UTC).isoformat()
    return accepted(await queue.http.get(f"{queue.path}/asof/jobs", params={"at": at, **query}))  # type: ignore[dict-item]


async def listed(queue: Topic, instant: float) -> dict[str, int]:
    """How many jobs are listed of each state, page by page."""
    jobs: list[Body] = []
    query: dict[str, object] = {"limit": 200}
    while query:
        page = await jobs_as_of(queue, instant, **query)
        jobs += page["jobs"]
        query = {"limit": 200, "cursor": page["next_cursor"]} if page["next_cursor"] else {}
    assert [job["seq"] for job in jobs] == sorted({job["seq"] for job in jobs})
    return dict(Counter(job["state"] for job in jobs))


async def later() -> float:
    """A time that comes after what was done, and before what will be."""
    await asyncio.sleep(MARGIN)
    now = time.time()
    await asyncio.sleep(MARGIN)
    return now


async def hidden(queue: Topic, *seqs: int) -> float:
    """Wait until nothing that has happened to these jobs is shown any more: a time just then."""

    async def fact() -> bool:
        answers = [await queue.http.get(f"{queue.path}/jobs/{seq}/history") for seq in seqs]
        return all(answer.status_code == 404 for answer in answers)

    await eventually(fact)
    return await later()


@pytest.mark.parametrize(("calls", "instants"), [(125, 50), pytest.param(500, 200, marks=pytest.mark.slow)])
async def test_it_agrees_with_a_model_at_random_instants_of_a_run_with_crashes(
    process: Process, topic: str, calls: int, instants: int
) -> None:
    """The service is killed now and then, and so are workers: they are silent until their leases end."""
    random = Random(20_261_121)
    async with httpx.AsyncClient(base_url=process.url(), timeout=30) as http:
        queue = Topic(http, topic)
        await queue.put(max_deliveries=MAX_DELIVERIES, dead_letter=f"{topic}.dlq")
        replay = Replay(queue, random)
        for call in range(calls):
            if call % 125 == 60:
                await replay.crash(process)
            await replay.step()
            await asyncio.sleep(random.random() * 0.02)
        replay.picture()
        checked, seen = 0, Counter[str]()
        while checked < instants:
            picture = random.choice(replay.pictures)
            if picture.end - picture.begin < 4 * MARGIN:
                continue
            instant = random.uniform(picture.begin + MARGIN, picture.end - MARGIN)
            if any(job.changes_near(instant) for job in picture.jobs):
                continue
            told = await as_of(queue, instant)
            assert picture.agrees(told, instant), (checked, instant, told, picture)
            if checked % 20 == 0:
                assert await listed(queue, instant) == {
                    word: told[name] for word, name in COUNTED.items() if told[name]
                }
            seen.update(name for name in ("ready", "in_flight", "scheduled", "expired", "dead") if told[name])
            checked += 1
        assert len(seen) == 5 if calls > 125 else len(seen) > 2


async def test_which_jobs_were_of_a_state(queue: Topic) -> None:
    await queue.put(max_deliveries=2, on_exhausted="fail")
    await queue.append({"data": 1, "key": "k"}, {"data": 2}, {"data": 3, "delay_ms": 3_600_000}, {"data": 4})
    came = await later()
    job = await queue.take(lease_ms=3_600_000)
    held = await later()
    await queue.ack("n", [job["$seq"]])

    first = await jobs_as_of(queue, came, limit=2)
    assert [(one["seq"], one["state"], one["deliveries"]) for one in first["jobs"]] == [
        (1, "ready", 0),
        (2, "ready", 0),
    ]
    rest = await jobs_as_of(queue, came, limit=2, cursor=first["next_cursor"])
    assert [(one["seq"], one["state"]) for one in rest["jobs"]] == [(3, "scheduled"), (4, "ready")]
    assert rest["next_cursor"] is None
    assert rest["jobs"][0]["until"] > (came + 3_000) * 1000
    [leased] = (await jobs_as_of(queue, held, state="leased"))["jobs"]
    assert (leased["seq"], leased["deliveries"], leased["node"], leased["key"]) == (1, 1, "n", None)
    assert came * 1000 - 1 <= leased["since"] <= held * 1000
    assert leased["until"] == job["deadline"]
    for wrong in ("state=in_flight", "cursor=eyJiZWhpbmQiOi0xfQ==", "limit=x", "q=1"):
        answer = await queue.http.get(f"{queue.path}/asof/jobs?at=2999-01-01T00:00:00Z&{wrong}")
        refused(answer, 400, "invalid_request")
    for path in (f"{queue.path}/asof", f"{queue.path}/asof/jobs"):
        refused(await queue.http.get(path), 400, "invalid_request")
        refused(await queue.http.get(f"{path}?at=yesterday"), 400, "invalid_request")
        refused(await queue.http.get(f"{path}?at=2001-01-01T00:00:00Z"), 404, "not_found")


async def test_jobs_from_before_events_are_shown(queue: Topic) -> None:
    """What happened to them since, or that nothing did, tells where they were. Dead letters, too."""
    other, dead = (Topic(queue.http, f"{queue.name}.{name}") for name in ("other", "dlq"))
    await other.put(event_ttl_ms=4_000, max_deliveries=1, dead_letter=dead.name)
    buried = await other.add(3)
    await other.claim(max=3)
    await other.nack("n", buried)
    await queue.put(event_ttl_ms=4_000, on_exhausted="fail")
    [head, second] = await queue.add(2, group="g")
    leased = await queue.add(4)
    await queue.claim(max=5, lease_ms=60_000)
    failed = await queue.add(2)
    await queue.claim(max=2)
    await queue.fail("n", failed)
    ready = await queue.add(4)
    [waits] = await queue.add(1, delay_ms=3_600_000)
    then = await hidden(queue, head, second, waits, *leased, *failed, *ready)
    refused(await queue.http.get(f"{queue.path}/asof?at=2026-01-01T00:00:00Z"), 404, "not_found")
    counts = {"ready": 4, "in_flight": 5, "scheduled": 1, "blocked": 1, "failed": 2, "expired": 0, "dead": 0}
    told = await as_of(queue, then)
    assert {name: told[name] for name in counts} == counts, "nothing happened"
    jobs = {word: counts[name] for word, name in COUNTED.items() if counts[name]}
    assert await listed(queue, then) == jobs
    assert told["oldest_claimable_age_ms"] > 4_000

    await queue.post("delete", before_seq=ready[1])
    assert (await queue.claim(max=1, lease_ms=60_000))["claimed"][0]["$seq"] == ready[1]
    await queue.ack("n", [head, leased[0]])
    await queue.nack("n", [leased[1]])
    await queue.extend("n", [leased[2]], 60_000)
    await requeue(queue, [failed[0]])
    told = await as_of(queue, then)
    assert {name: told[name] for name in counts} == counts
    assert await listed(queue, then) == jobs
    [waiting] = (await jobs_as_of(queue, then, state="scheduled"))["jobs"]
    assert (waiting["seq"], waiting["since"], waiting["deliveries"]) == (waits, None, 0)
    told = await as_of(queue, await later())
    assert (told["in_flight"], told["blocked"]) == (3, 0)

    await hidden(other, *buried)
    then = await later()
    assert (await as_of(other, then))["dead"] == 3
    await requeue(other, buried[:1])
    assert (await as_of(other, then))["dead"] == 3
    assert await listed(other, then) == {"dead_lettered": 3}
    assert (await as_of(other, await later()))["dead"] == 2
