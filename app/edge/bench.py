"""What this instance reaches: enqueues, claims and acks on a topic of its own, by the functions that routes call.

Without the network and its clients: `holdfast bench` measures with them, in the same words.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final
from uuid import UUID, uuid4

import msgspec

from app import __version__
from app.audit.trail import Actor
from app.edge.context import Context
from app.engine.claimers import Claimer
from app.errors import AlreadyExists, InvalidRequest, TopicNotFound
from app.queue import benches
from app.queue.benches import Bench, Figures, Measured
from app.queue.model import Batch, Held, Job
from app.topics import store
from app.topics.settings import Chosen, TopicType

MOST_JOBS: Final = 20_000
MOST_BATCH: Final = 1_000
MOST_CLIENTS: Final = 16
MOST_SIZE: Final = 10_000  # bytes of a payload
VERB_SECONDS: Final = 5.0  # the longest that a verb is measured for
LEASE_MS: Final = 600_000
NODE: Final = "bench"
PREFIX: Final = "holdfast-bench-"  # of the topic, as the client's `holdfast bench` has it

Call = Callable[[], Awaitable[int]]  # says of how many jobs it was; 0: there is no more to do


class Asked(msgspec.Struct, frozen=True):
    """So many jobs in all, a call, calls at once, and bytes of a payload."""

    jobs: int = 5_000
    batch: int = 100
    clients: int = 4
    size: int = 100

    def check(self) -> None:
        """Raises InvalidRequest."""
        most = {"jobs": MOST_JOBS, "batch": MOST_BATCH, "clients": MOST_CLIENTS, "size": MOST_SIZE}
        for name, limit in most.items():
            if not 1 <= getattr(self, name) <= limit:
                raise InvalidRequest(f"{name} must be 1 to {limit}.", {"field": name})


async def run(context: Context, asked: Asked, by: Actor) -> Bench:
    """Measure, and keep what came of it. Takes load while it lasts, three times VERB_SECONDS at most, and then deletes
    its topic. Raises InvalidRequest; AlreadyExists where one is under way, in whichever process; and what the verbs
    raise."""
    asked.check()
    db, bench = context.pools.rest, uuid4()
    for one in await benches.left(db):
        await _delete(context, one, by)
    if not await benches.begin(db, bench, by.name or by.id, __version__):
        raise AlreadyExists("A measurement is under way: one at a time.")
    measured = None
    try:
        measured = await _measured(context, bench, asked, by)
    finally:
        try:
            await _delete(context, bench, by)
        finally:
            await benches.end(db, bench, measured)
    return next(one for one in await benches.read(db) if one.id == bench)


async def _measured(context: Context, bench: UUID, asked: Asked, by: Actor) -> Measured:
    name, engine = _topic_of(bench), context.engine
    await store.create(context.pools.rest, name, Chosen(type=TopicType.QUEUE, lease_ms=LEASE_MS), by)
    context.policies.changed(name)
    policy = await context.policies.queue(name)
    payload = b'"%b"' % (b"x" * (asked.size - 2)) if asked.size > 1 else b"0"
    left = _parts(asked)
    held: list[list[Job]] = []

    async def enqueue() -> int:
        count = next(left, 0)
        if count:
            await engine.enqueues.place(policy, Batch(payloads=[payload] * count), count * len(payload))
        return count

    async def claim() -> int:
        jobs = await engine.claims.claim(Claimer(policy, NODE, asked.batch, LEASE_MS))
        if jobs:
            held.append(jobs)
        return len(jobs)

    async def ack() -> int:
        jobs = held.pop() if held else []
        return len(await engine.settlements.ack(policy, [Held(job.seq, None, NODE) for job in jobs])) if jobs else 0

    calls = {"enqueue": enqueue, "claim": claim, "ack": ack}
    verbs = [await _run(verb, call, asked.clients) for verb, call in calls.items()]
    return Measured(asked.jobs, asked.batch, asked.clients, asked.size, verbs)


def _parts(asked: Asked) -> Iterator[int]:
    """How many jobs each call is of."""
    whole, rest = divmod(asked.jobs, asked.batch)
    return iter([asked.batch] * whole + [rest] * bool(rest))


async def _run(verb: str, call: Call, clients: int) -> Figures:
    """Call until there is no more to do, or VERB_SECONDS are over."""
    times: list[float] = []
    began = time.perf_counter()

    async def until_done() -> int:
        done = 0
        while (at := time.perf_counter()) < began + VERB_SECONDS:
            count = await call()
            if not count:
                break
            times.append(time.perf_counter() - at)
            done += count
        return done

    ends = await asyncio.gather(*(until_done() for _ in range(clients)), return_exceptions=True)
    seconds, jobs = time.perf_counter() - began, 0
    for done in ends:
        if isinstance(done, BaseException):
            raise done
        jobs += done
    times.sort()
    p50, p95, p99, longest = (_percentile(times, share) for share in (50, 95, 99, 100))
    return Figures(verb, jobs, len(times), round(seconds, 3), round(jobs / seconds), p50, p95, p99, longest)


def _percentile(times: list[float], share: int) -> float | None:
    return round(times[-(-len(times) * share // 100) - 1] * 1000, 2) if times else None


def _topic_of(bench: UUID) -> str:
    return f"{PREFIX}{bench.hex}"


async def _delete(context: Context, bench: UUID, by: Actor) -> None:
    name = _topic_of(bench)
    try:
        policy = await context.policies.get(name)
    except TopicNotFound:
        return
    await context.engine.delete(policy, if_empty=False, by=by)
