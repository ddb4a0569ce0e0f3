"""The troubles of a queue, from its levels and from what happened to its jobs recently. docs/admin.md has the rules.

Pure functions. Texts are whole sentences, for pages and the API.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from app.base.times import duration
from app.kernel.counts.holders import LongLeases, StuckGroups

if TYPE_CHECKING:
    from app.kernel.topics.policy import Policy

VERY_LATE: Final = 10  # times a topic's goal
RECENT: Final = 10  # minutes that count as recent
UNCOUNTED_MS: Final = 120_000  # most time until what happened to jobs is counted
LONG: Final = 10  # a lease of more than so many times the topic's length is long
MANY_FAIL: Final = 0.1  # of the jobs that ended


class Level(StrEnum):
    """How bad it is: bad hurts now, watch will hurt if it stays, note is intended by an operator."""

    BAD = "bad"
    WATCH = "watch"
    NOTE = "note"


class TroubleCode(StrEnum):
    """The kind of trouble."""

    NOBODY_CLAIMS = "nobody_claims"
    WAITING = "waiting"
    DEAD_LETTERS = "dead_letters"
    FAILING = "failing"
    STUCK_GROUPS = "stuck_groups"
    LONG_LEASES = "long_leases"
    THROTTLED = "throttled"
    PAUSED = "paused"
    DRAINING = "draining"


class Trouble(msgspec.Struct, frozen=True):
    """A thing that is wrong. `text` is a whole sentence."""

    code: TroubleCode
    level: Level
    text: str

    @property
    def is_late(self) -> bool:
        """Whether jobs have waited for the topic's goal, or longer."""
        return self.code in _LATE or (self.code is TroubleCode.PAUSED and self.level is not Level.NOTE)


class TopicLevels(msgspec.Struct, frozen=True):
    """What a topic holds.

    count: unfinished jobs, or a log's records.
    dead: failed jobs: in the topic itself, and in its dead-letter topic.
    oldest_ms: how long the oldest ready job has been claimable; None: there is none.
    exact: whether all due jobs were counted. dead_exact: whether all failed jobs were.
    takes_dead: whether it is the dead-letter topic of other topics.
    earliest_seq: the first live job or record; head_seq + 1 if there is none; None: not known.
    """

    is_queue: bool
    count: int
    bytes: int
    ready: int = 0
    in_flight: int = 0
    scheduled: int = 0
    blocked: int = 0
    dead: int = 0
    oldest_ms: int | None = None
    exact: bool = True
    dead_exact: bool = True
    takes_dead: bool = False
    stuck: StuckGroups = StuckGroups()
    long: LongLeases = LongLeases()
    head_seq: int | None = None
    earliest_seq: int | None = None

    @property
    def waited_ms(self) -> int | None:
        """How long its oldest job has waited: a ready one, or one behind the head of its group."""
        return longest(self.oldest_ms, self.stuck.oldest_ms)

    @property
    def parts(self) -> list[tuple[str, int]]:
        """Unfinished jobs by state."""
        return [
            ("ready", self.ready),
            ("in-flight", self.in_flight),
            ("scheduled", self.scheduled),
            ("blocked", self.blocked),
        ]


class RecentOutcomes(msgspec.Struct, frozen=True):
    """What happened to its jobs within the last RECENT minutes, as far as counted."""

    claimed: int
    completed: int
    failed: int
    dead_lettered: int


_LATE: Final = {TroubleCode.NOBODY_CLAIMS, TroubleCode.WAITING, TroubleCode.THROTTLED}
_WEIGHT: Final = {Level.BAD: 2, Level.WATCH: 1, Level.NOTE: 0}


def troubles(levels: TopicLevels, policy: Policy, lately: RecentOutcomes | None) -> list[Trouble]:
    """The troubles of a queue, the worst first; empty if there are none."""
    config, control = policy.config, policy.control
    goal_ms, stuck, long = config.wait_goal_ms, levels.stuck, levels.long
    found: list[Trouble] = []
    blocked = f"{_jobs(levels.blocked)} {_wait(levels.blocked)}"
    late = None if levels.takes_dead else lateness(levels.oldest_ms, goal_ms)
    behind = lateness(stuck.oldest_ms, goal_ms)
    if control.paused:
        ready = _are_ready(levels.ready) if levels.ready else "No jobs are ready"
        level = Level.WATCH if late or behind else Level.NOTE
        found.append(Trouble(TroubleCode.PAUSED, level, f"The topic is paused. {ready}."))
    if control.draining:
        found.append(Trouble(TroubleCode.DRAINING, Level.NOTE, "The topic is draining: it takes no new jobs."))
    happened = lately is not None and lately.claimed + lately.completed + lately.failed > 0
    moves = levels.in_flight > 0 or happened
    if levels.ready and late and not control.paused:
        waiting = f"{_jobs(levels.ready)} {_wait(levels.ready)}"
        waited_ms = levels.oldest_ms or 0
        if lately is not None and not happened and (not levels.in_flight or waited_ms >= UNCOUNTED_MS):
            since = duration(min(waited_ms, RECENT * 60_000))
            text = f"{waiting}. No claim was counted in the last {since}."
            if levels.in_flight:
                text += f" {_jobs(levels.in_flight)} {_have(levels.in_flight)} been in flight since before."
            found.append(Trouble(TroubleCode.NOBODY_CLAIMS, late if levels.in_flight else Level.BAD, text))
        elif config.throughput_limit:
            text = f"{waiting}: throughput_limit allows {config.throughput_limit:,} per second."
            found.append(Trouble(TroubleCode.THROTTLED, late, text))
        else:
            found.append(Trouble(TroubleCode.WAITING, late, f"{waiting}: more arrive than workers claim."))
    if stuck.groups:
        level = Level.WATCH if _times(stuck.ms, goal_ms) < VERY_LATE else Level.BAD
        found.append(Trouble(TroubleCode.STUCK_GROUPS, level, stuck_sentence(stuck)))
    elif behind and not control.paused and not (late and levels.ready) and moves:
        text = f"{blocked} behind the first jobs of their groups, which run one at a time."
        found.append(Trouble(TroubleCode.WAITING, behind, text))
    elif levels.blocked and not levels.ready and not levels.scheduled and not moves and lately is not None:
        text = f"{blocked} behind the first jobs of their groups, and none of these is running."
        found.append(Trouble(TroubleCode.STUCK_GROUPS, Level.BAD, text))
    if long.leases:
        text = (
            f"{_leases(long.leases)} for up to {duration(long.ends_ms)} more; the topic's own lease length is "
            f"{duration(config.lease_ms)}. A worker that hangs keeps its jobs for so long."
        )
        found.append(Trouble(TroubleCode.LONG_LEASES, Level.WATCH, text))
    if lately is not None:
        found += _failures(lately)
    return sorted(found, key=lambda one: -_WEIGHT[one.level])


def lateness(oldest_ms: int | None, goal_ms: int) -> Level | None:
    """How bad it is that a queue's oldest job has waited for so long; None: it is not late."""
    times = _times(oldest_ms, goal_ms)
    return None if times < 1 else Level.WATCH if times < VERY_LATE else Level.BAD


def long_ms(lease_ms: int, goal_ms: int) -> int:
    """A lease is long if it ends in so many ms or more, by the topic's lease length and its goal."""
    return max(LONG * lease_ms, goal_ms)


def longest(*waits_ms: int | None) -> int | None:
    """The longest of these waits; None if there is none."""
    return max((one for one in waits_ms if one is not None), default=None)


def stuck_sentence(stuck: StuckGroups) -> str:
    """Describe groups that don't move."""
    many = "1 group doesn't" if stuck.groups == 1 else f"{stuck.groups:,} groups don't"
    first = "its first job has" if stuck.groups == 1 else "the first job of each has"
    long = f"{'' if stuck.groups == 1 else 'up to '}{duration(stuck.ms)}"
    wait = f"{_jobs(stuck.behind)} {_wait(stuck.behind)} behind"
    return f"{many} move: {first} been leased or failing for {long}, and {wait}."


def rank(found: Sequence[Trouble], oldest_ms: int | None, goal_ms: int) -> tuple[int, int, float, int]:
    """A sort key, the worst first: by level, by the number of troubles, by the oldest job's wait as a multiple of the
    goal, and by its wait."""
    worst = max((_WEIGHT[one.level] for one in found), default=-1)
    return (-worst, -len(found), -_times(oldest_ms, goal_ms), -(oldest_ms or 0))


def _times(oldest_ms: int | None, goal_ms: int) -> float:
    """The wait of a queue's oldest job as a multiple of its goal; 0 if there is none."""
    return (oldest_ms or 0) / goal_ms if goal_ms else 0.0


def _failures(lately: RecentOutcomes) -> list[Trouble]:
    ended = lately.completed + lately.failed
    if not lately.failed:
        return []
    share = lately.failed / ended
    level = Level.BAD if share >= MANY_FAIL else Level.WATCH
    if lately.dead_lettered:
        code, became = TroubleCode.DEAD_LETTERS, f"{_jobs(lately.dead_lettered)} became dead letters"
    else:
        code, became = TroubleCode.FAILING, f"{_jobs(lately.failed)} failed for good"
    return [Trouble(code, level, f"{became} within {RECENT} min, {_share(share)} of the jobs that ended.")]


def _share(share: float) -> str:
    return "all" if share == 1 else f"{max(share * 100, 0.1):.2g} %"


def _jobs(n: int) -> str:
    return "1 job" if n == 1 else f"{n:,} jobs"


def _leases(n: int) -> str:
    return "1 lease lasts" if n == 1 else f"{n:,} leases last"


def _wait(n: int) -> str:
    return "waits" if n == 1 else "wait"


def _have(n: int) -> str:
    return "has" if n == 1 else "have"


def _are_ready(n: int) -> str:
    return f"{_jobs(n)} {'is' if n == 1 else 'are'} ready"
