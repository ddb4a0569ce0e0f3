"""Where the claims of one topic begin, so that they don't walk over what was consumed before. docs/adr/0012 has the
argument.

While a snapshot is older than deletions, their index entries stay, and a claim from the start walks over all of them.
So a process remembers, for each lane, up to where it has seen everything taken. Two pairs of marks:

- the hot ones (`after`, `due`): a hint. What turns up below them is found by a sweep from the low ones;
- the low ones (`low`, `due_low`): proven. No job can be claimable at or below them, now or later (see marks.py).

A lane that has none begins at the topic's floor, which is proven for all of those. So a topic may have a hundred
thousand lanes: of those long empty nothing is remembered here.

The tallies, whose sums are the topic's counts, have a proven mark as well: below it none is left.

Positions are the sequence's, times are in µs since 1970 by the database's clock.
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

LOOK_SECONDS: Final = 0.01  # how often the due parts of busy lanes are looked at, as long as they are empty
SWEEP_SECONDS: Final = 0.4  # the least time between two sweeps of a lane
SWEEP_SHARE: Final = 0.03  # of the time, that sweeps may take
DUE_MARGIN_US: Final = 50_000  # what was written longer before a look has been committed, or is found by a sweep
ANY: Final = 2**31 - 1  # jobs: as many as there are slots
CLOCK_US: Final = 2_000_000  # by which the database's clock may step back without a word
ROUNDING_US: Final = 2  # times pass through a float on their way


class Mark(msgspec.Struct):
    """One lane's marks."""

    after: int = 0
    due: int = 0
    low: int = 0
    due_low: int = 0
    looked: float = 0.0  # when its due part was last seen to be empty
    swept: float = 0.0  # when a claim last began at the low marks
    took: float = 0.0  # what that took, in seconds
    cost: float = 0.0  # the less of that and what the one before took: what was held up by something else is no cost


class Plan(msgspec.Struct, frozen=True):
    """How one claim reaches into the lanes."""

    reaches: list[Reach]
    shares: list[Share]  # of the reaches, all of them
    swept: list[bool]  # which of them begin at the low marks
    epoch: int  # of the cursor, when it was made
    at: float  # when it was made, by the monotonic clock

    @property
    def sweeps(self) -> bool:
        """Whether all begin there."""
        return all(self.swept)


class Cursor(msgspec.Struct):
    """The marks of one topic."""

    topic: Topic
    marks: dict[Lane, Mark] = msgspec.field(default_factory=dict)
    used: float = 0.0  # when this process last moved a job of the topic
    tally: int = 0  # the tallies' low mark
    drawn: int = 0  # as the sequence was last seen
    clock: int = 0  # the database's, as it was last seen, in µs
    bite: int = 10_000  # as many jobs a claim may lock: fewer once their bytes cut one short
    epoch: int = 0  # what was learned in an earlier one counts no more
    lanes: int = 0  # how many there are, where that was seen
    floor: tuple[int, int] = (0, 0)  # low marks of the lanes that have none of their own
    proven: tuple[int, int] = (0, 0)  # whatever is below this, a position and a time, can be seen by now
    ages: Ages = msgspec.field(default_factory=Ages)
    _cost: float = 0.0  # of a sweep of all lanes, in seconds
    _hurried: float = 0.0  # all sweeps before count no more
    _planned: float = 0.0
    _learned: float = 0.0

    def plan(self, lanes: Sequence[Lane], shares: Sequence[Share] | None = None) -> Plan:
        """Where the next claim of these lanes begins. Without `shares`, it may take all from any of them."""
        now = self._planned = time.monotonic()
        pause = max(SWEEP_SECONDS, self._cost / SWEEP_SHARE)
        reaches: list[Reach] = []
        swept: list[bool] = []
        for lane in lanes:
            mark = self._mark(lane)
            sweeps = now >= mark.swept + pause or mark.swept <= self._hurried
            swept.append(sweeps)
            if sweeps:
                reaches.append(Reach(lane, mark.low, mark.due_low))
            else:
                looks = now >= mark.looked + LOOK_SECONDS
                reaches.append(Reach(lane, mark.after, mark.due if looks else None))
        return Plan(reaches, list(shares or [Share(len(reaches), ANY)]), swept, self.epoch, now)

    def plan_at(self, first: Sequence[tuple[Reach, int]]) -> Plan:
        """A claim that begins there, and takes at most so many jobs of each lane."""
        self._planned = time.monotonic()
        for reach, _ in first:
            self._mark(reach.lane)
        shares = [Share(1, most) for _, most in first]
        return Plan([reach for reach, _ in first], shares, [False] * len(shares), self.epoch, self._planned)

    def learn(self, plan: Plan, claimed: ClaimResult, wanted: int, seconds: float) -> None:
        """Move the hot marks by what a claim for `wanted` jobs met, and pace the sweeps by the seconds it took."""
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
                break  # not looked at
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
        """The low marks: no job that may ever be claimed stands at or below them."""
        lanes = [Reach(lane, mark.low, mark.due_low) for lane, mark in self.marks.items()]
        return Lows(lanes, self.tally, self.floor, max(self.lanes, len(lanes)))

    def lows_of(self, lanes: Sequence[Lane]) -> list[Reach]:
        """The low marks of these lanes."""
        unknown = Mark(low=self.floor[0], due_low=self.floor[1])
        marks = [(lane, self.marks.get(lane, unknown)) for lane in lanes]
        return [Reach(lane, mark.low, mark.due_low) for lane, mark in marks]

    def raise_floor(self, proven: tuple[int, int], working: Collection[Lane]) -> None:
        """A look at all lanes, begun after `proven` was, found something in these alone.

        What can be seen below `proven` was seen, so in the others there is nothing, and nothing more can come: those
        whose hot marks say no more than that are forgotten.
        """
        for lane in working:
            self._mark(lane)  # where lanes began until now
        self.floor = max(self.floor[0], proven[0]), max(self.floor[1], proven[1])
        low, due_low = self.floor
        for lane in [lane for lane, mark in self.marks.items() if mark.after <= low and mark.due <= due_low]:
            if lane not in working:
                self._cost -= self.marks.pop(lane).cost

    def raise_proven(self, seen: Draw) -> None:
        """All that was drawn by then, and all whose time had come, can be seen by now. A little behind, as marks."""
        self.proven = max(self.proven[0], seen.drawn), max(self.proven[1], seen.at - CLOCK_US)

    def raise_low(self, lane: Lane, seen: Draw, head: LaneHead) -> None:
        """A lane's first jobs are these, as of a moment when all that was `seen` could be read."""
        mark = self.marks.get(lane)
        if mark is None:
            return  # reset meanwhile
        low = seen.drawn if head.ready is None else min(seen.drawn, head.ready - 1)
        due_low = seen.at if head.due is None else min(seen.at, head.due)
        # A little behind, so that a clock that is set back a little hides nothing.
        mark.low, mark.due_low = max(mark.low, low), max(mark.due_low, due_low - CLOCK_US)
        mark.after, mark.due = max(mark.after, mark.low), max(mark.due, mark.due_low)

    def sweep(self, lane: Lane) -> None:
        """Begin the lane's next claim at its low marks: there is something in it which claims took for empty."""
        self._mark(lane).swept = 0.0

    def saw_clock(self, at: int) -> None:
        """Forget everything if the database's clock was set back: what is written now may lie below the marks."""
        if at < self.clock - CLOCK_US:
            self.reset()
        self.clock = max(self.clock, at)

    def sweep_all(self) -> None:
        """Begin the next claim at the low marks: what kept jobs from being seen is gone."""
        self._hurried = time.monotonic()

    def note_change(self, began: float) -> None:
        """This process has changed claimable jobs since `began`, by the monotonic clock. A claim that ran meanwhile
        passed them, as they were locked."""
        if self._learned >= began or self._planned > self._learned:
            self.sweep_all()

    def look_at_due(self) -> None:
        """Look at the due parts with the next claim: this process has put a job there."""
        for mark in self.marks.values():
            mark.looked = 0.0

    def reset(self) -> None:
        """Forget everything: the database may be another one now."""
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
            end = min(end, seen.ready_lost - 1)  # still there: it must not be passed
        # A sweep that was cut short has more to find right behind its last job.
        mark.after = max(end, mark.low) if down else max(end, mark.after)

    @staticmethod
    def _due(mark: Mark, begin: int, seen: LaneEnd, at: int, *, whole: bool, down: bool) -> None:
        end = at - DUE_MARGIN_US if whole else (begin if seen.due is None else seen.due - ROUNDING_US)
        if seen.due_lost is not None:
            end = min(end, seen.due_lost - ROUNDING_US)
        mark.due = max(end, mark.due_low) if down else max(end, mark.due)


_NOTHING: Final = LaneEnd()
