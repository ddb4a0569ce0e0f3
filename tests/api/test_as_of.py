"""What a queue looked like: the ledger, asked about past instants, against a model that replays the recorded calls."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from random import Random

import httpx

from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.api.process import Process
from tests.api.replay import MARGIN, MAX_DELIVERIES, Replay, requeue

# The states of jobs that are listed, and how the counts call them.
COUNTED = {
    **{word: word for word in ("ready", "scheduled", "blocked", "failed", "expired")},
    **{"leased": "in_flight", "dead_lettered": "dead"},
}
CALLS = 500
INSTANTS = 200


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


async def test_it_agrees_with_a_model_at_random_instants_of_a_run_with_crashes(process: Process, topic: str) -> None:
    """The service is killed now and then, and so are workers: they are silent until their leases end."""
    random = Random(20_261_121)
    async with httpx.AsyncClient(base_url=process.url(), timeout=30) as http:
        queue = Topic(http, topic)
        await queue.put(max_deliveries=MAX_DELIVERIES, dead_letter=f"{topic}.dlq")
        replay = Replay(queue, random)
        for call in range(CALLS):
            if call % 125 == 60:
                await replay.crash(process)
            await replay.step()
            await asyncio.sleep(random.random() * 0.02)
        replay.picture()
        checked, seen = 0, Counter[str]()
        while checked < INSTANTS:
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
        assert min(seen.values()) > 10
        assert len(seen) == 5


async def test_what_it_refuses(queue: Topic) -> None:
    refused(await queue.http.get(f"{queue.path}/asof"), 400, "invalid_request")
    refused(await queue.http.get(f"{queue.path}/asof?at=yesterday"), 400, "invalid_request")
    refused(await queue.http.get(f"{queue.path}/asof?at=2001-01-01T00:00:00Z"), 404, "not_found")


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
    refused(await queue.http.get(f"{queue.path}/asof/jobs"), 400, "invalid_request")
    for wrong in ("state=in_flight", "cursor=eyJiZWhpbmQiOi0xfQ==", "limit=x", "q=1"):
        answer = await queue.http.get(f"{queue.path}/asof/jobs?at=2999-01-01T00:00:00Z&{wrong}")
        refused(answer, 400, "invalid_request")
    refused(await queue.http.get(f"{queue.path}/asof/jobs?at=2001-01-01T00:00:00Z"), 404, "not_found")


async def test_what_failed(queue: Topic) -> None:
    await queue.put(max_deliveries=1, on_exhausted="fail")
    [seq] = await queue.add(1)
    before = time.time() + MARGIN
    await asyncio.sleep(2 * MARGIN)
    await queue.claim()
    await queue.nack("n", [seq])
    assert (await as_of(queue, before))["failed"] == 0
    told = await as_of(queue, time.time() + MARGIN)
    assert (told["failed"], told["ready"], told["in_flight"]) == (1, 0, 0)


async def test_dead_letters_and_their_requeue(queue: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=f"{queue.name}.dlq")
    [seq] = await queue.add(1)
    await queue.claim()
    await queue.nack("n", [seq])
    died = time.time() + MARGIN
    dead = Topic(queue.http, f"{queue.name}.dlq")
    letters = (await dead.claim())["claimed"]
    await dead.nack("n", [letters[0]["$seq"]])
    await requeue(queue, [seq])
    told = await as_of(queue, died)
    assert (told["dead"], told["ready"]) == (1, 0)
    told = await as_of(queue, time.time() + 60)
    assert (told["dead"], told["ready"]) == (0, 1)
    assert (await as_of(dead, time.time() + 60))["ready"] == 0


async def test_a_dead_letter_that_is_deleted_is_none_any_more(queue: Topic) -> None:
    dead = Topic(queue.http, f"{queue.name}.dlq")
    await dead.put()
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    seqs = await queue.add(3)
    await queue.claim(max=3)
    await queue.nack("n", seqs)
    died = await later()
    [letter] = (await dead.claim(max=1))["claimed"]
    await dead.ack("n", [letter["$seq"]])
    one_less = await later()
    await dead.post("delete", before_seq=1_000_000)
    assert (await as_of(queue, died))["dead"] == 3
    assert (await as_of(queue, one_less))["dead"] == 2
    assert (await as_of(queue, await later()))["dead"] == 0
    assert (await as_of(dead, one_less))["ready"] == 2


async def test_a_job_cancelled_under_a_lease_that_has_ended_is_gone(queue: Topic) -> None:
    [seq] = await queue.add(1)
    job = await queue.take(lease_ms=300)
    assert (await queue.post("cancel", seqs=[seq]))["marked"] == 1
    marked, ended = await later(), job["deadline"] / 1000
    told = await as_of(queue, min(marked, ended - MARGIN))
    assert (told["ready"], told["in_flight"]) == (0, 1)
    told = await as_of(queue, ended + MARGIN)  # which may be to come
    assert (told["ready"], told["in_flight"]) == (0, 0)


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


async def test_jobs_from_before_events_are_shown(queue: Topic) -> None:
    """What happened to them since, or that nothing did, tells where they were."""
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


async def test_dead_letters_from_before_events_are_shown(queue: Topic) -> None:
    dead = Topic(queue.http, f"{queue.name}.dlq")
    await queue.put(event_ttl_ms=4_000, max_deliveries=1, dead_letter=dead.name)
    seqs = await queue.add(3)
    await queue.claim(max=3)
    await queue.nack("n", seqs)
    then = await hidden(queue, *seqs)
    assert (await as_of(queue, then))["dead"] == 3
    await requeue(queue, seqs[:1])
    assert (await as_of(queue, then))["dead"] == 3
    assert await listed(queue, then) == {"dead_lettered": 3}
    assert (await as_of(queue, await later()))["dead"] == 2
