"""Who inflicts faults: one at a time and in pairs, in slots that a seed decides."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tools.chaos.faults import GONE, Fault, Stage
from tools.chaos.record import Recorder, now
from tools.chaos.traffic import Traffic
from tools.history.facts import PAUSED
from tools.history.history import Outage

PAIRS: Final = 0.3  # of the slots
CALM: Final = (0.2, 1.0)  # seconds before a slot
RECOVERY_SECONDS: Final = 30.0
BEAT_SECONDS: Final = 0.02
LATE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Slot:
    """Faults that come together, the second one `apart` seconds after the first; and how long to wait before."""

    kinds: tuple[str, ...]
    calm: float
    apart: float


def plan(seed: str, kinds: Sequence[str], calm: tuple[float, float] = CALM, pairs: float = PAIRS) -> Iterator[Slot]:
    """Slots for ever: each kind comes as often as any other, in an order that changes. Without any they are empty.

    `calm`: seconds before each, from and to; `pairs`: the share of slots that have two."""
    dice = random.Random(seed)
    bag: list[str] = []
    while True:
        if not kinds:
            yield Slot((), 1.0, 0.0)
            continue
        if len(bag) < 2:
            more = list(kinds)
            dice.shuffle(more)
            bag += more
        pair = len(kinds) > 1 and dice.random() < pairs and bag[0] != bag[1]
        taken = tuple(bag.pop(0) for _ in range(2 if pair else 1))
        yield Slot(taken, dice.uniform(*calm), dice.uniform(0, 1.5))


@dataclass(slots=True)
class Nemesis:
    """`told` hears of each fault when it is over, with the seconds that it took to recover from."""

    stage: Stage
    traffic: Traffic
    recorder: Recorder
    faults: Mapping[str, Fault]
    patience: float
    told: Callable[[str, float], None] = lambda _kind, _seconds: None
    recoveries: dict[str, list[float]] = field(default_factory=dict)

    async def inflict(self, slot: Slot) -> None:
        """The faults of a slot, and the recovery: until calls of each kind that were sent afterwards were answered."""
        await asyncio.sleep(slot.calm)
        if not slot.kinds:
            return
        delays = (0.0, slot.apart)
        spans = await asyncio.gather(*(self._one(kind, delays[at]) for at, kind in enumerate(slot.kinds)))
        lifted = max(span[1] for span in spans)
        end = asyncio.get_running_loop().time() + RECOVERY_SECONDS * self.patience
        while self.traffic.progress.least() <= lifted:
            if asyncio.get_running_loop().time() > end:
                self.recorder.surprise(f"no progress {RECOVERY_SECONDS:.0f} s after {' and '.join(slot.kinds)}")
                break
            await asyncio.sleep(0.01)
        ended = now()
        for kind, (began, over) in zip(slot.kinds, spans, strict=True):
            self.recorder.note(Outage(began, ended, kind, over))
            self.recoveries.setdefault(kind, []).append((ended - over) / 1000)
            self.told(kind, (ended - over) / 1000)

    async def _one(self, kind: str, delay: float) -> tuple[float, float]:
        """When it began and when it was over."""
        await asyncio.sleep(delay)
        began = now()
        with suppress(*GONE):
            await self.faults[kind](self.stage)
        return began, now()


async def beat(recorder: Recorder) -> None:
    """Writes down when the machine, or this process, in which the clients and the proxies live, stood still."""
    last = now()
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        at = now()
        if at - last > (BEAT_SECONDS + LATE_SECONDS) * 1000:
            recorder.note(Outage(last, at, PAUSED, at))
        last = at
