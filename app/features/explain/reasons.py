"""Turns the facts about a job or topic into reasons why it is not running. Pure; explain.py finds the facts.

docs/explain.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

import msgspec
from msgspec.structs import replace

from app.base.times import duration, rfc3339
from app.features.explain.store import GroupHead, JobNow
from app.kernel.counts.holders import NOT_STUCK, StuckGroups
from app.kernel.counts.triage import stuck_sentence
from app.kernel.ledger import Recent
from app.kernel.topics.policy import Control

IDLE_MS: Final = 10_000  # without a claim for this long, a topic with jobs counts as having no workers
_NOTHING: Final = Recent(0, 0, 0, None, None)


class ReasonCode(Enum):
    """The kinds of reasons. The one to fix first comes first."""

    ENDED = "ended"  # completed, deleted, or gone for another cause that the ledger names
    DEAD_LETTERED = "dead_lettered"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"  # while leased: it ends with the lease
    PAUSED = "paused"
    BLOCKED = "blocked"  # behind the first job of its group
    EXHAUSTED = "exhausted"  # no deliveries left: the next claim or sweep settles it
    SCHEDULED = "scheduled"
    LEASED = "leased"
    NO_CLAIMER = "no_claimer"
    TENANT_LIMIT = "tenant_limit"
    THROUGHPUT_LIMIT = "throughput_limit"
    BEHIND = "behind"
    NEXT = "next"
    EMPTY = "empty"  # only for topics and groups


_TIMES: Final = ("at", "until", "result_expires_at")  # in the order in which a message names them


class Reason(msgspec.Struct, frozen=True):
    """Why a job is not running: a message, and its numbers by name."""

    code: ReasonCode
    message: str
    numbers: dict[str, object] = msgspec.field(default_factory=dict)

    @property
    def parts(self) -> list[str | int]:
        """The message split at its times. The times are ints in ms since 1970, so that pages can format them."""
        parts, rest = list[str | int](), self.message
        for name in _TIMES:
            ms = self.numbers.get(name)
            if not isinstance(ms, int):
                continue
            before, time, after = rest.partition(rfc3339(ms))
            if time:
                parts += [before, ms]
                rest = after
        return [*parts, rest]


class ClaimPace(msgspec.Struct, frozen=True):
    """How fast a topic's jobs were claimed recently.

    `recent`: the events of the last `seconds`; `seconds` is 0 if unknown.
    `waiting`: the number of claims that wait in this process.
    `limit`: the topic's throughput limit in jobs a second, 0 for none.
    `at_limit`: whether the limit holds jobs back.
    `refill_ms`: when the next token comes, 0 if there is one.
    """

    recent: Recent
    seconds: float
    waiting: int
    limit: int = 0
    at_limit: bool = False
    refill_ms: int = 0

    @property
    def nobody_claims(self) -> bool:
        """Whether no worker claims. False if the ledger could not be read in time."""
        idle = self.recent.idle_ms
        return self.seconds > 0 and not (self.waiting or self.at_limit or (idle is not None and idle < IDLE_MS))

    @property
    def rate(self) -> float:
        """Jobs claimed a second, since the first claim in the window."""
        span = self.recent.span_ms
        return 0.0 if span is None else self.recent.claimed / max(span / 1000, 0.001)


class Ahead(msgspec.Struct, frozen=True):
    """How many jobs are handed out before a job. `at_least`: there may be more."""

    jobs: int
    at_least: bool


class TenantRoom(msgspec.Struct, frozen=True):
    tenant: str
    limit: int
    in_flight: int

    @property
    def is_full(self) -> bool:
        return self.in_flight >= self.limit


class Facts(msgspec.Struct):
    """The facts that explain a job besides its row. Fields that don't matter in the job's state keep their defaults."""

    control: Control
    head: GroupHead | None = None  # for a blocked job
    room: TenantRoom | None = None  # for a tenant with a limit
    pace: ClaimPace = msgspec.field(default_factory=lambda: ClaimPace(_NOTHING, 1.0, 0))
    ahead: Ahead = msgspec.field(default_factory=lambda: Ahead(0, False))


class Verdict(msgspec.Struct, frozen=True):
    """The reasons, the one to fix first coming first. `wait_ms`: when the job will start, None if unknown."""

    reasons: list[Reason]
    wait_ms: int | None


class Waiting(msgspec.Struct, frozen=True):
    """A topic's jobs by state. `at_least`: there may be more claimable jobs."""

    claimable: int
    at_least: bool
    scheduled: int
    blocked: int
    leased: int


def explain_job(row: JobNow, facts: Facts) -> Verdict:
    over = [*_cancel_reasons(row)] or [*_end_reasons(row)]
    if over:
        return Verdict(over, None)
    paused = [] if row.state == "leased" else [*_pause_reasons(row.tenant, facts.control)]
    reasons = [*paused, *_group_reasons(facts.head), *_own_reasons(row)]
    if row.state not in {"ready", "scheduled"} or row.spent:
        return Verdict(reasons, None)
    # A pause or a full tenant ends at an unknown time.
    kept_back = bool(paused) or (facts.room is not None and facts.room.is_full)
    turn = None if kept_back else _turn_ms(facts.pace, facts.ahead)
    reasons += _turn_reasons(facts, turn)
    if not reasons:
        reasons.append(Reason(ReasonCode.NEXT, "It is next: this topic's next claim gets it."))
    return Verdict(reasons, None if turn is None else max(row.visible_ms - row.now_ms, turn))


def explain_group(head: GroupHead, verdict: Verdict | None) -> Verdict:
    """Why a group is stuck. `verdict` is that of its first job, None if the group has none."""
    if verdict is not None:
        return verdict
    if head.before == 0:
        return Verdict([Reason(ReasonCode.EMPTY, "This group has no waiting or running jobs.", {"behind": 0})], None)
    return Verdict([*_group_reasons(replace(head, before=0))], None)


def explain_topic(waiting: Waiting, control: Control, pace: ClaimPace, stuck: StuckGroups = NOT_STUCK) -> Verdict:
    """Why a topic's jobs are not running. `wait_ms` is for a job that is enqueued now."""
    reasons = [*_pause_reasons(None, control)]
    if control.paused_tenants:
        names = f"{', '.join(control.paused_tenants[:10])}{', …' * (len(control.paused_tenants) > 10)}"
        text = f"Paused tenants: {names}. Workers get no jobs of these tenants until you resume them."
        reasons.append(Reason(ReasonCode.PAUSED, text, {"tenants": len(control.paused_tenants)}))
    if stuck.groups:
        numbers: dict[str, object] = {"groups": stuck.groups, "behind": stuck.behind, "for_ms": stuck.ms}
        reasons.append(Reason(ReasonCode.BLOCKED, stuck_sentence(stuck), numbers))
    ahead = Ahead(waiting.claimable, waiting.at_least)
    turn = None if control.paused else _turn_ms(pace, ahead)
    if waiting.claimable == 0:
        words = (
            (waiting.scheduled, "scheduled for later"),
            (waiting.blocked, "blocked behind the first jobs of their groups"),
            (waiting.leased, "running"),
        )
        parts = [f"{count} {word}" for count, word in words if count]
        text = f"No job is ready: {', '.join(parts)}." if parts else "The topic has no waiting or running jobs."
        numbers = {"scheduled": waiting.scheduled, "blocked": waiting.blocked, "leased": waiting.leased}
        reasons.append(Reason(ReasonCode.EMPTY, text, numbers))
    else:
        reasons += _claimer_reasons(pace)
        reasons += _limit_reasons(pace)
        reasons.append(_turn_reason(pace, ahead, f"{_jobs(ahead, 'is', 'are')} ready.", turn))
    return Verdict(reasons, turn)


def explain_dead_letter(place: tuple[str, int] | None, deliveries: int, error: str | None, at_ms: int | None) -> Reason:
    """The reason of a job that became a dead letter. `place` is None if the caller may not know it."""
    topic, seq = place or (None, None)
    when = "" if at_ms is None else f" at {rfc3339(at_ms)}"
    text = f"It became a dead letter{when}, after {_times(deliveries)}. {_last_error(error)}"
    if place is not None:
        text += f" It is now job {seq} of {topic}: requeue that job to run it again."
    numbers: dict[str, object] = {"topic": topic, "seq": seq, "deliveries": deliveries, "error": error, "at": at_ms}
    return Reason(ReasonCode.DEAD_LETTERED, text, numbers)


def _end_reasons(row: JobNow) -> Iterator[Reason]:
    at = row.updated_ms
    if row.state == "failed":
        text = f"It failed at {rfc3339(at)}, after {_times(row.deliveries)}. {_last_error(row.last_error)}"
        text += " Requeue it to run it again."
        yield Reason(ReasonCode.FAILED, text, {"deliveries": row.deliveries, "at": at})
    elif row.state == "expired":
        at = row.expires_ms or at
        text = f"It expired at {rfc3339(at)}: its time to live ended before a worker completed it."
        yield Reason(
            ReasonCode.EXPIRED, f"{text} Requeue it to run it again.", {"deliveries": row.deliveries, "at": at}
        )


def _cancel_reasons(row: JobNow) -> Iterator[Reason]:
    if row.cancelled and row.state == "leased":
        left = row.visible_ms - row.now_ms
        yield Reason(
            ReasonCode.CANCELLED,
            f"It was cancelled, but {_worker(row.node)} still holds it. It ends with the lease, in {duration(left)} "
            "unless the worker extends the lease.",
            {"node": row.node, "until": row.visible_ms, "in_ms": left},
        )
    elif row.cancelled:
        yield Reason(
            ReasonCode.CANCELLED,
            f"It was cancelled, and its lease ended at {rfc3339(row.visible_ms)}. The next claim or sweep removes it.",
            {"node": row.node, "until": row.visible_ms, "in_ms": 0},
        )


def _pause_reasons(tenant: str | None, control: Control) -> Iterator[Reason]:
    if control.paused:
        yield Reason(ReasonCode.PAUSED, "The topic is paused. Workers get no jobs from it until you resume it.")
    elif tenant is not None and tenant in control.paused_tenants:
        yield Reason(
            ReasonCode.PAUSED,
            f"Tenant {tenant!r} is paused. Workers get no jobs of this tenant until you resume it.",
            {"tenant": tenant},
        )


def _own_reasons(row: JobNow) -> Iterator[Reason]:
    left = row.visible_ms - row.now_ms
    if row.spent and row.state != "leased":
        yield Reason(
            ReasonCode.EXHAUSTED,
            f"It has no deliveries left (max_deliveries is {row.max_deliveries}). {_last_error(row.last_error)} "
            "The next claim or sweep settles it as the topic's on_exhausted says.",
            {"deliveries": row.deliveries, "max_deliveries": row.max_deliveries},
        )
    if row.state == "scheduled" or (row.state == "blocked" and left > 0):
        why = ""
        if row.deliveries:
            why = f" It was returned after {_times(row.deliveries)}. {_last_error(row.last_error)}"
        yield Reason(
            ReasonCode.SCHEDULED,
            f"It is scheduled for {rfc3339(row.visible_ms)}, in {duration(left)}.{why}",
            {"until": row.visible_ms, "in_ms": left, "deliveries": row.deliveries},
        )
    elif row.state == "leased":
        since = row.leased_ms or row.now_ms
        yield Reason(
            ReasonCode.LEASED,
            f"It has been running on {_worker(row.node)} for {duration(row.now_ms - since)} (delivery "
            f"{row.deliveries}). Its lease ends in {duration(left)} unless the worker extends it.{_progress(row)}",
            {
                "node": row.node,
                "since": since,
                "until": row.visible_ms,
                "in_ms": left,
                "deliveries": row.deliveries,
                **_progress_numbers(row),
            },
        )


def _group_reasons(head: GroupHead | None) -> Iterator[Reason]:
    if head is None:
        return
    first = f"Job {head.seq} comes first in its group and"
    numbers: dict[str, object] = {"head": head.seq, "state": head.state, "until": head.until_ms, "before": head.before}
    if head.seq is None:
        text = "The first job of its group has ended. The next one is being unblocked."
    elif head.state == "leased":
        text = f"{first} is running: {_worker(head.node)} holds it until {rfc3339(head.until_ms or 0)} "
        text += f"(delivery {head.deliveries})."
        numbers["node"] = head.node
    elif head.state == "scheduled":
        text = f"{first} is scheduled for {rfc3339(head.until_ms or 0)}."
    elif head.state == "ready":
        text = f"{first} is ready, but no worker has claimed it. See job {head.seq} for the reason."
    else:
        text = f"{first} is {head.state}. The next claim or sweep removes it and unblocks the next one."
    if head.before:
        text += f" {head.before} more job{'s' * (head.before > 1)} of the group must run before this one."
    yield Reason(ReasonCode.BLOCKED, text, numbers)


def _turn_reasons(facts: Facts, turn_ms: int | None) -> Iterator[Reason]:
    pace, ahead, room = facts.pace, facts.ahead, facts.room
    yield from _claimer_reasons(pace)
    if room is not None and room.is_full:
        text = f"Tenant {room.tenant!r} is at its limit: {room.in_flight} in flight, {room.limit} allowed."
        text += " Its next job starts when one of them ends."
        numbers: dict[str, object] = {"tenant": room.tenant, "limit": room.limit, "in_flight": room.in_flight}
        yield Reason(ReasonCode.TENANT_LIMIT, text, numbers)
    yield from _limit_reasons(pace)
    if ahead.jobs:
        yield _turn_reason(pace, ahead, f"{_jobs(ahead, 'comes', 'come')} before it.", turn_ms)


def _claimer_reasons(pace: ClaimPace) -> Iterator[Reason]:
    if not pace.nobody_claims:
        return
    idle = pace.recent.idle_ms
    seconds = pace.seconds if idle is None else idle / 1000
    long = f"{'at least ' * (idle is None)}{duration(seconds * 1000)}"
    text = f"No worker has claimed a job from this topic for {long}. Check that its workers are running."
    yield Reason(ReasonCode.NO_CLAIMER, text, {"idle_ms": round(seconds * 1000), "at_least": idle is None})


def _limit_reasons(pace: ClaimPace) -> Iterator[Reason]:
    if pace.at_limit:
        refill = f"in {duration(pace.refill_ms)}" if pace.refill_ms else "now"
        yield Reason(
            ReasonCode.THROUGHPUT_LIMIT,
            f"The topic is at its throughput limit of {pace.limit} jobs a second. It hands out the next job {refill}.",
            {"limit": pace.limit, "refill_ms": pace.refill_ms},
        )


def _jobs(ahead: Ahead, one: str, more: str) -> str:
    return f"{'At least ' * ahead.at_least}{ahead.jobs} job{f' {one}' if ahead.jobs == 1 else f's {more}'}"


def _turn_reason(pace: ClaimPace, ahead: Ahead, count: str, turn: int | None) -> Reason:
    speed = ""
    if turn is not None:
        speed = f" Workers claim about {pace.rate:.3g} a second: that takes about {duration(turn)}."
    numbers: dict[str, object] = {
        "ahead": ahead.jobs,
        "at_least": ahead.at_least,
        "per_second": round(pace.rate, 3),
        "wait_ms": turn,
    }
    return Reason(ReasonCode.BEHIND, f"{count}{speed}", numbers)


def _turn_ms(pace: ClaimPace, ahead: Ahead) -> int | None:
    """When the job behind those ahead is claimed, in ms. None if there are too few claims to estimate."""
    if pace.nobody_claims or (ahead.jobs and not pace.rate):
        return None
    return max(round(ahead.jobs / pace.rate * 1000) if ahead.jobs else 0, pace.refill_ms)


def _worker(node: str | None) -> str:
    return node or "a worker without a name"


def _last_error(error: str | None) -> str:
    return "No error was recorded." if error is None else f'Last error: "{error[:200]}".'


def _progress_numbers(row: JobNow) -> dict[str, object]:
    progress = row.progress
    if progress is None:
        return {}
    return {"progress": {"percent": progress.percent, "note": progress.note, "at": progress.at_ms}}


def _progress(row: JobNow) -> str:
    progress = row.progress
    if progress is None:
        return ""
    note = "" if progress.note is None else f': "{progress.note[:200]}"'
    return f" Progress: {progress.percent}%{note}."


def _times(deliveries: int) -> str:
    return f"{deliveries} deliver{'y' if deliveries == 1 else 'ies'}"
