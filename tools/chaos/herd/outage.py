"""F29: PostgreSQL is killed, and comes back after half a minute, and so do two hundred clients."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from tools.bench.bench import run_load, say
from tools.bench.scenarios.stand import Stand, standing
from tools.bench.scenarios.steady import Nothing
from tools.chaos.herd.flock import SLOT, Course, Flock, together
from tools.chaos.herd.verdict import Found, Verdict

CLIENTS: Final = 200
PROCESSES: Final = 2
SHARE: Final = 0.8  # of what goes through when all send as fast as they are answered
BEFORE: Final = 1.0  # seconds until a load begins, in its own processes
LEAST: Final = 0.95  # of the rate before
WITHIN: Final = 15.0  # seconds after the outage
COLLAPSE: Final = 0.5  # of the rate before, in any two seconds afterwards: a second collapse
EXTRA: Final = 1.1  # times as many requests as before


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each phase."""

    capacity: float = 10
    warm: float = 4
    base: float = 10
    outage: float = 30
    after: float = 20


QUICK: Final = Times(6, 1, 3, 4, 6)


@contextmanager
def drivers() -> Iterator[ProcessPoolExecutor]:
    """Processes for loads, with their modules loaded."""
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for ready in [pool.submit(run_load, Nothing()) for _ in range(PROCESSES)]:
            ready.result()
        yield pool


async def drive(pool: ProcessPoolExecutor, flocks: Sequence[Flock]) -> Course:
    """All at once, each in a process of its own."""
    loop = asyncio.get_running_loop()
    return together(await asyncio.gather(*(loop.run_in_executor(pool, run_load, flock) for flock in flocks)))


def flocks(whole: Flock) -> list[Flock]:
    """One as several, for PROCESSES processes."""
    each = whole.clients // PROCESSES
    return [replace(whole, name=f"{whole.name}-{n}", clients=each) for n in range(PROCESSES)]


async def capacity(url: str, topic: str, pool: ProcessPoolExecutor, seconds: float, clients: int = CLIENTS) -> float:
    """Jobs a second that go through when all clients send as fast as they are answered."""
    begins = time.monotonic() + BEFORE
    course = await drive(pool, flocks(Flock(url, topic, "capacity", begins, begins + seconds, clients, pause=0.0)))
    most = course.acks(begins + seconds / 2, begins + seconds)  # all of them have connected by then
    if not most:
        raise RuntimeError(f"no job went through in {seconds / 2:g} s")
    return most


def recovered(course: Course, least: float, since: float, until: float) -> float | None:
    """Seconds from `since` to the first two with that rate; None if there were none by `until`."""
    slots = range(round((until - since - 2) / SLOT) + 1)
    return next((n * SLOT for n in slots if course.acks(since + n * SLOT, since + n * SLOT + 2) >= least), None)


async def play(times: Times) -> Verdict:
    """All of it, on a service and a PostgreSQL of its own."""
    with drivers() as pool:
        async with standing() as stand:
            await stand.queue("capacity")
            most = await capacity(stand.url, "capacity", pool, times.capacity)
            rate = SHARE * most
            say(f"{CLIENTS} clients: {most:.0f} jobs a second at most, {rate:.0f} asked for")
            await stand.queue("herd")
            begins = time.monotonic() + BEFORE
            seconds = times.warm + times.base + times.outage + WITHIN + times.after
            whole = Flock(stand.url, "herd", "herd", begins, begins + seconds, CLIENTS, pause=CLIENTS / rate)
            running = asyncio.create_task(drive(pool, flocks(whole)))
            down = begins + times.warm + times.base
            await asyncio.sleep(down - time.monotonic())
            up = await _outage(stand, times.outage)
            course = await running
            return judge(course, Spans(begins + times.warm, down, up, begins + seconds), await stand.left("herd"))


async def _outage(stand: Stand, seconds: float) -> float:
    """When it was over."""
    pid = stand.postgres.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(stand.postgres.restart)
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class Spans:
    """When the base rate begins to count, the database goes, it is there again, and the load ends."""

    base: float
    down: float
    up: float
    ends: float


def judge(course: Course, at: Spans, left: int) -> Verdict:
    """Of a course of jobs beside an outage; `left`: jobs that nobody got in the end."""
    settled = at.up + WITHIN
    before, sent = course.acks(at.base, at.down), course.requests(at.base, at.down)
    after, again = course.acks(settled, at.ends), course.requests(settled, at.ends)
    away = course.requests(at.down + 1, at.up)
    back = recovered(course, LEAST * before, at.up, at.ends)
    pairs = range(int((at.ends - settled - 2) / SLOT))
    lowest = min(course.acks(settled + n * SLOT, settled + n * SLOT + 2) for n in pairs)
    each = again / after if after else 99.0
    found = [
        Found("seconds until 95 % of the rate before is there again", back, most=WITHIN),
        Found("the rate afterwards, of that before", after / before, least=LEAST),
        Found("the lowest two seconds afterwards, of the rate before", lowest / before, least=COLLAPSE),
        Found("requests a second in the outage, of those before", away / sent, most=EXTRA),
        Found("requests a job afterwards, of those before", each / (sent / before), most=EXTRA),
        Found("jobs left", float(left), most=0),
    ]
    notes = {"jobs a second before": before, "afterwards": after, "calls given up": float(course.failed)}
    return Verdict("thundering_herd", found, notes)
