"""What a driver says: one line of JSON for each line it reads.

    {"verb": "prepare", "url": …}                 → {"version": …}
        make the queue's schema in an empty database (Holdfast's driver: the URL of a topic that is there)
    {"verb": "cycle", "jobs": …, "payload": …, "slices": …, "seconds": …, "claim": …}
        → {"jobs": …, "enqueue_per_s": …, "run_per_s": …, "cycle_per_s": …, "slices": […]}
        enqueue all jobs, of so many bytes each; then run them through a handler that does nothing, taken so many
        at a time, null for what is best

    anything that goes wrong                      → {"error": …}

`jobs` of the answer is how many were run before `seconds` were over. A run counts from the start of the worker until
its last job is completed in the database. `slices` has the rate of each full slice of `jobs` / `slices` jobs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import uvloop


class Meter:
    """Counts a run's jobs. `done` is set after the last one, or when the time is over."""

    def __init__(self, jobs: int, slices: int, seconds: float) -> None:
        self.jobs = jobs
        self.seconds = seconds
        self.done = asyncio.Event()
        self.count = 0
        self._size = max(jobs // slices, 1)
        self._next = self._size
        self._times: list[float] = []

    def start(self) -> None:
        """The worker is about to be started."""
        self._times.append(time.perf_counter())
        asyncio.get_running_loop().call_later(self.seconds, self.done.set)

    def handled(self, count: int = 1) -> None:
        """So many jobs more went through the handler."""
        self.count += count
        while self.count >= self._next:
            self._times.append(time.perf_counter())
            self._next += self._size
        if self.count >= self.jobs:
            self.done.set()

    def rates(self) -> list[float]:
        """Jobs a second, slice by slice."""
        # Where a slice is smaller than a batch, two of them can end together.
        pairs = zip(self._times, self._times[1:], strict=False)
        return [self._size / max(after - before, 1e-6) for before, after in pairs]


class Driver(Protocol):
    """A queue. Each of the calls has an event loop of its own."""

    async def prepare(self, url: str) -> str:
        """Make the schema; the queue's version."""

    async def cycle(self, payloads: list[dict[str, str]], meter: Meter, claim: int | None) -> tuple[float, float]:
        """Enqueue, then run; the seconds that each of them took, the run's with the worker's stop where that is what
        completes its last jobs."""


async def in_lanes(enqueue: Callable[[Any], Awaitable[object]], jobs: Sequence[Any], batch: int, lanes: int) -> None:
    """Enqueue all jobs, `batch` in each call, `lanes` calls at once."""
    batches = (jobs[i : i + batch] for i in range(0, len(jobs), batch))

    async def lane() -> None:
        for some in batches:
            await enqueue(some)

    await asyncio.gather(*(lane() for _ in range(lanes)))


async def until_done(worker: asyncio.Future[Any], meter: Meter) -> None:
    """Wait for the last job, or for the end of the time, or for a worker that ends before."""
    done = asyncio.ensure_future(meter.done.wait())
    await asyncio.wait({worker, done}, return_when=asyncio.FIRST_COMPLETED)
    done.cancel()
    if worker.done():
        worker.result()


def payloads_of(jobs: int, size: int) -> list[dict[str, str]]:
    """Objects that are `size` bytes of JSON each, with a little that varies."""
    frame = len(json.dumps({"id": "00000000", "text": ""}))
    text = os.urandom(size).hex()[: max(size - frame, 1)]
    return [{"id": f"{i:08x}", "text": text} for i in range(jobs)]


def serve(driver: Driver) -> None:
    """Answer the requests of stdin until it closes."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin:
        try:
            answer = uvloop.run(_answer(driver, json.loads(line)))
        except BaseException as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


async def _answer(driver: Driver, request: dict[str, Any]) -> dict[str, Any]:
    if request["verb"] == "prepare":
        return {"version": await driver.prepare(request["url"])}
    meter = Meter(request["jobs"], request["slices"], request["seconds"])
    payloads = payloads_of(request["jobs"], request["payload"])
    enqueuing, running = await driver.cycle(payloads, meter, request["claim"])
    enqueued, ran = request["jobs"] / enqueuing, meter.count / running
    return {
        "jobs": meter.count,
        "enqueue_per_s": enqueued,
        "run_per_s": ran,
        "cycle_per_s": 1 / (1 / enqueued + 1 / ran) if ran else 0.0,
        "slices": meter.rates(),
    }
