"""Where the claims of one topic start reading, so that they skip what was already consumed. See docs/adr/0012.

While an old snapshot is open, index entries of deleted jobs stay, and a claim from the start of the index would read
all of them. So each process remembers, for each lane, up to where all jobs were taken. There are two pairs of marks:

- the hot marks (`after`, `due`) are a hint. A sweep from the low marks finds jobs that appear below them.
- the low marks (`low`, `due_low`) are proven: no job at or below them can be claimable, now or later (see marks.py).

A lane without marks starts at the topic's floor, which is proven for all such lanes. So nothing is remembered for empty
lanes, and a topic can have a hundred thousand of them.

The tallies, whose sums are the topic's counts, have a proven mark too: no tally is left below it.

Positions come from the topic's sequence. Times are in µs since 1970 by the database's clock.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from app.kernel.claim.consumer import ClaimResult, LaneEnd
from app.kernel.claim.ordering import Ages
from app.kernel.counts.inspector import Draw, LaneHead, Lows
from app.kernel.model import Lane, Reach, Share, Topic

LOOK_SECONDS: Final = 0.01  # least time between reads of an empty due part of a busy lane
SWEEP_SECONDS: Final = 0.4  # least time between two sweeps of a lane
SWEEP_SHARE: Final = 0.03  # most of the time that sweeps can take
DUE_MARGIN_US: Final = 50_000  # a due job that was written longer ago has been committed, or a sweep finds it
ANY: Final = 2**31 - 1  # jobs: no limit but the number of slots
CLOCK_US: Final = 2_000_000  # how far the database's clock can step back unnoticed
ROUNDING_US: Final = 2  # times pass through a float


class Mark(msgspec.Struct):
    after: int = 0
    due: int = 0
    low: int = 0
    due_low: int = 0
    looked: float = 0.0  # when its due part was last found empty
    swept: float = 0.0  # when a claim last started at the low marks
    took: float = 0.0  # how many seconds that claim took
    cost: float = 0.0  # the lesser of that and of the sweep before, so that a delay from elsewhere does not count


class Plan(msgspec.Struct, frozen=True):
    """Where one claim starts in each lane, and how much it takes."""

    reaches: list[Reach]
    shares: list[Share]  # they cover all reaches
    swept: list[bool]  # whether each reach starts at the low marks
    epoch: int  # the cursor's epoch when the plan was made
    at: float  # when it was made, by the monotonic clock

    @property
    def sweeps(self) -> bool:
        """Whether all reaches start at the low marks."""
        return all(self.swept)


class Cursor(msgspec.Struct):
    """The marks of one topic."""

    topic: Topic
    marks: dict[Lane, Mark] = msgspec.field(default_factory=dict)
    used: float = 0.0  # when this process last moved a job of the topic
    tally: int = 0  # the tallies' low mark
    drawn: int = 0  # the sequence's last known value
    clock: int = 0  # the database's last known time in µs
    lock_limit: int = 10_000  # most jobs that a claim locks; fewer after the limit on bytes cut a claim short
    epoch: int = 0  # a claim that was planned in an earlier epoch teaches nothing
    lanes: int = 0  # the number of lanes, if it is known
    floor: tuple[int, int] = (0, 0)  # low marks of lanes without marks of their own
    proven: tuple[int, int] = (0, 0)  # a position and a time: all jobs below have become visible
    ages: Ages = msgspec.field(default_factory=Ages)
    _cost: float = 0.0  # seconds for a sweep of all lanes
    _stale_until: float = 0.0  # earlier sweeps don't count: all lanes have to be swept again
    _planned: float = 0.0
    _learned: float = 0.0

    def plan(self, lanes: Sequence[Lane], shares: Sequence[Share] | None = None) -> Plan:
        """Where the next claim of these lanes starts. Without `shares`, it can take all jobs from any lane."""
        now = self._planned = time.monotonic()
        pause = max(SWEEP_SECONDS, self._cost / SWEEP_SHARE)
        reaches: list[Reach] = []
        swept: list[bool] = []
        for lane in lanes:
            mark = self._mark(lane)
            sweeps = now >= mark.swept + pause or mark.swept <= self._stale_until
            swept.append(sweeps)
            if sweeps:
                reaches.append(Reach(lane, mark.low, mark.due_low))
            else:
                looks = now >= mark.looked + LOOK_SECONDS
                reaches.append(Reach(lane, mark.after, mark.due if looks else None))
        return Plan(reaches, list(shares or [Share(len(reaches), ANY)]), swept, self.epoch, now)

    def plan_at(self, first: Sequence[tuple[Reach, int]]) -> Plan:
        """The plan of a claim that starts at these reaches, and takes at most so many jobs of each lane."""
        self._planned = time.monotonic()
        for reach, _ in first:
            self._mark(reach.lane)
        shares = [Share(1, most) for _, most in first]
        return Plan([reach for reach, _ in first], shares, [False] * len(shares), self.epoch, self._planned)

    def learn(self, plan: Plan, claimed: ClaimResult, wanted: int, seconds: float) -> None:
        """Move the hot marks by the answer of a claim for `wanted` jobs, and pace the sweeps by the seconds it took."""
        self.saw_clock(claimed.at)
        if plan.epoch != self.epoch:
            return
        now = self._learned = time.monotonic()
        full = claimed.met >= wanted
        last = max(claimed.seen, default=-1)
        each, end = seconds / max(len(plan.reaches), 1), 0
        for share in plan.shares:
            begin, end = end, end + share.lanes
            if full and begin > last:
                break  # the claim did not read these lanes
            seen = [claimed.seen.get(i, _NOTHING) for i in range(begin, end)]
            cut = sum(one.met for one in seen) >= share.most or (full and last < end)
            at = max((i for i, one in enumerate(seen) if one.met), default=-1)
            for i, one in enumerate(seen[: at + 1] if cut else seen):
                reach, swept, whole = plan.reaches[begin + i], plan.swept[begin + i], not cut or i < at
                mark = self._mark(reach.lane)
                if swept:
                    cost = min(each, mark.took)
                    self._cost += cost - mark.cost
                    mark.swept, mark.took, mark.cost = plan.at, each, cost
                self._ready(mark, reach, one, down=swept and not whole)
                if reach.due is not None:
                    whole_due = reach.most_due is None and (whole or one.ready is not None)
                    if whole_due and one.due is None:
                        mark.looked = now
                    self._due(mark, reach.due, one, claimed.at, whole=whole_due, down=swept and not whole_due)

    def lows(self) -> Lows:
        """The low marks: no job at or below them can ever be claimed."""
        lanes = [Reach(lane, mark.low, mark.due_low) for lane, mark in self.marks.items()]
        return Lows(lanes, self.tally, self.floor, max(self.lanes, len(lanes)))

    def lows_of(self, lanes: Sequence[Lane]) -> list[Reach]:
        unknown = Mark(low=self.floor[0], due_low=self.floor[1])
        marks = [(lane, self.marks.get(lane, unknown)) for lane in lanes]
        return [Reach(lane, mark.low, mark.due_low) for lane, mark in marks]

    def raise_floor(self, proven: tuple[int, int], working: Collection[Lane]) -> None:
        """Raise the floor to `proven`. A read of all lanes that began after `proven` was set found jobs in `working`
        only.

        That read saw all jobs below `proven`, so the other lanes have none there and get none later. A lane whose hot
        marks say no more than that is forgotten.
        """
        for lane in working:
            self._mark(lane)  # keeps the old floor for it
        self.floor = max(self.floor[0], proven[0]), max(self.floor[1], proven[1])
        low, due_low = self.floor
        for lane in [lane for lane, mark in self.marks.items() if mark.after <= low and mark.due <= due_low]:
            if lane not in working:
                self._cost -= self.marks.pop(lane).cost

    def raise_proven(self, seen: Draw) -> None:
        """All jobs up to this position, and all that were due by this time, are visible now. Leaves the same margin for
        the clock as the marks."""
        self.proven = max(self.proven[0], seen.drawn), max(self.proven[1], seen.at - CLOCK_US)

    def raise_low(self, lane: Lane, seen: Draw, head: LaneHead) -> None:
        """Raise the low marks of a lane to its first jobs, read when all jobs up to `seen` were visible."""
        mark = self.marks.get(lane)
        if mark is None:
            return  # reset meanwhile
        low = seen.drawn if head.ready is None else min(seen.drawn, head.ready - 1)
        due_low = seen.at if head.due is None else min(seen.at, head.due)
        # The margin covers a clock that was set back a little.
        mark.low, mark.due_low = max(mark.low, low), max(mark.due_low, due_low - CLOCK_US)
        mark.after, mark.due = max(mark.after, mark.low), max(mark.due, mark.due_low)

    def sweep(self, lane: Lane) -> None:
        """Start the lane's next claim at its low marks: there is a job that claims took for consumed."""
        self._mark(lane).swept = 0.0

    def saw_clock(self, at: int) -> None:
        """Forget everything if the database's clock was set back: jobs that are written now may be below the marks."""
        if at < self.clock - CLOCK_US:
            self.reset()
        self.clock = max(self.clock, at)

    def sweep_all(self) -> None:
        """Start the next claim at the low marks: whatever kept jobs from being seen is over."""
        self._stale_until = time.monotonic()

    def note_change(self, began: float) -> None:
        """This process has changed claimable jobs since `began`, by the monotonic clock. A claim that ran meanwhile
        skipped them because they were locked."""
        if self._learned >= began or self._planned > self._learned:
            self.sweep_all()

    def look_at_due(self) -> None:
        """Read the due parts with the next claim: this process has put a job there."""
        for mark in self.marks.values():
            mark.looked = 0.0

    def reset(self) -> None:
        """Forget everything: the database may be a different one now."""
        self.marks.clear()
        self.ages = Ages()
        self.drawn = self.clock = self.tally = 0
        self.floor = self.proven = (0, 0)
        self._cost = 0.0
        self.epoch += 1

    def _mark(self, lane: Lane) -> Mark:
        mark = self.marks.get(lane)
        if mark is None:
            low, due_low = self.floor
            mark = self.marks[lane] = Mark(low, due_low, low, due_low)
        return mark

    @staticmethod
    def _ready(mark: Mark, reach: Reach, seen: LaneEnd, *, down: bool) -> None:
        end = reach.after if seen.ready is None else seen.ready
        if seen.ready_lost is not None:
            end = min(end, seen.ready_lost - 1)  # the job is still there
        # A sweep that was cut short has more jobs to find right behind its last one.
        mark.after = max(end, mark.low) if down else max(end, mark.after)

    @staticmethod
    def _due(mark: Mark, begin: int, seen: LaneEnd, at: int, *, whole: bool, down: bool) -> None:
        end = at - DUE_MARGIN_US if whole else (begin if seen.due is None else seen.due - ROUNDING_US)
        if seen.due_lost is not None:
            end = min(end, seen.due_lost - ROUNDING_US)
        mark.due = max(end, mark.due_low) if down else max(end, mark.due)


_NOTHING: Final = LaneEnd()
