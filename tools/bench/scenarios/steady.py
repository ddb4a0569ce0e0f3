"""A steady load: producers that send at a rate, consumers that claim and ack, and who connects again where it broke."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tools.bench.client import Later, Script, connect, play, post
from tools.bench.load import ack_body, claim_body, data_of, records_body

BATCH: Final = 10  # jobs a request
MOST: Final = 50  # jobs a claim
LEASE_MS: Final = 2_000  # what a client held that broke off is there again then
WAIT_MS: Final = 200
SLOT: Final = 0.1  # seconds
LATE: Final = 1.0  # seconds that a producer makes up for: what fell due before that while nobody answered, is left out
DRAIN: Final = 15.0  # seconds at the end until all has to be acked


@dataclass(frozen=True, slots=True)
class Course:
    """How many jobs were acked in each slot of time since `begins`, of time.monotonic(); how many were put in, in all;
    and how often a client's connection broke, or it was refused."""

    begins: float
    acked: Sequence[int]
    enqueued: int
    broken: int

    def rate(self, start: float, end: float) -> float:
        """Jobs acked a second, between two times of time.monotonic(), by whole slots."""
        first, last = round((start - self.begins) / SLOT), round((end - self.begins) / SLOT)
        return sum(self.acked[first:last]) / ((last - first) * SLOT)

    def until(self, rate: float, since: float) -> float | None:
        """Seconds from `since` to the first second with that rate; None if there is none."""
        last = self.begins + len(self.acked) * SLOT - 1
        slots = range(round((last - since) / SLOT) + 1)
        return next((n * SLOT for n in slots if self.rate(since + n * SLOT, since + n * SLOT + 1) >= rate), None)


@dataclass(frozen=True, slots=True)
class Steady:
    """`rate` jobs a second, times the factor of the phase: (seconds, factor), one after the other from `begins` on."""

    port: int
    topic: str
    begins: float
    rate: float
    phases: Sequence[tuple[float, float]]
    payload: int
    producers: int = 4
    consumers: int = 4

    @property
    def ends(self) -> float:
        return self.begins + sum(seconds for seconds, _ in self.phases)

    async def run(self) -> Course:
        return await _Run(self).run()

    def factor(self, at: float) -> float:
        """Of the phase at this time."""
        end = self.begins
        for seconds, factor in self.phases:
            end += seconds
            if at < end:
                return factor
        return self.phases[-1][1]


@dataclass(frozen=True, slots=True)
class Nothing:
    """No load: who has sent it finds the process up, and its modules loaded."""

    async def run(self) -> None:
        pass


@dataclass(slots=True)
class _Run:
    load: Steady
    acked: list[int] = field(default_factory=list)
    enqueued: int = 0
    broken: int = 0

    async def run(self) -> Course:
        load = self.load
        self.acked = [0] * round((load.ends - load.begins + DRAIN) / SLOT)
        path = f"/v0/topics/{load.topic}"
        body = post(path, records_body([data_of(load.payload) for _ in range(BATCH)]))
        claim = post(f"{path}/claim", claim_body(MOST, WAIT_MS, LEASE_MS))
        until = load.ends + LATE  # for the last answers
        producers = [self._keep(self._producer(number, body), until) for number in range(load.producers)]
        consumers = [self._keep(self._consumer(claim, f"{path}/ack"), load.ends + DRAIN) for _ in range(load.consumers)]
        await asyncio.gather(*producers, *consumers)
        return Course(load.begins, self.acked, self.enqueued, self.broken)

    async def _keep(self, script: Callable[[], Script], until: float) -> None:
        """Play a script to its end; on a new connection where one broke."""
        while (left := until - time.monotonic()) > 0:
            try:
                [connection] = await connect([self.load.port], [script()])
                await asyncio.wait_for(play([connection]), left)
            except (OSError, RuntimeError, TimeoutError):
                self.broken += 1
                await asyncio.sleep(random.uniform(0.02, 0.2))
            else:
                return

    def _producer(self, number: int, request: bytes) -> Callable[[], Script]:
        load = self.load
        due = load.begins + number * BATCH / load.rate

        def script() -> Script:
            nonlocal due
            while due < load.ends:
                yield Later(due, request)
                self.enqueued += BATCH
                due += BATCH * load.producers / (load.rate * load.factor(due))
                due = max(due, time.monotonic() - LATE)

        return script

    def _consumer(self, claim: bytes, path: str) -> Callable[[], Script]:
        def script() -> Script:
            while True:
                count, ack = ack_body((yield claim))
                if count:
                    yield post(path, ack)
                    slot = int((time.monotonic() - self.load.begins) / SLOT)
                    self.acked[max(0, min(slot, len(self.acked) - 1))] += count
                elif time.monotonic() > self.load.ends + (LEASE_MS / 1000 if self.broken else 0):
                    return  # nobody holds any, who has broken off

        return script
