"""Why a job is not running: from facts to reasons, what must be mended first coming first. docs/explain.md.

Pure: what the facts are, and where they come from, is explain.py's business.
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

IDLE_MS: Final = 10_000  # jobs are there, and nobody has claimed any for so long: nobody does
_NOTHING: Final = Recent(0, 0, 0, None, None)


class ReasonCode(Enum):
    """Reasons, in the order of what must be mended first."""

    ENDED = "ended"  # acknowledged, deleted or the like
    DEAD_LETTERED = "dead_lettered"  # it is in another topic by now
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"  # while it is leased: it ends with the lease
    PAUSED = "paused"
    BLOCKED = "blocked"  # behind the head of its group
    EXHAUSTED = "exhausted"  # its last delivery is over: the next claim or sweep takes it out
    SCHEDULED = "scheduled"
    LEASED = "leased"
    NO_CLAIMER = "no_claimer"
    TENANT_LIMIT = "tenant_limit"
    THROUGHPUT_LIMIT = "throughput_limit"
    BEHIND = "behind"
    NEXT = "next"
    EMPTY = "empty"  # of a topic


_TIMES: Final = ("at", "until", "result_expires_at")  # of a reason's numbers, in the order that its words have them


class Reason(msgspec.Struct, frozen=True):
    """One of them: in words, and its numbers by name."""

    code: ReasonCode
    message: str
    numbers: dict[str, object] = msgspec.field(default_factory=dict)

    @property
    def parts(self) -> list[str | int]:
        """Its words, with the times among them apart, in ms since 1970."""
        found, rest = list[str | int](), self.message
        for name in _TIMES:
            ms = self.numbers.get(name)
            before, told, after = rest.partition(rfc3339(ms)) if isinstance(ms, int) else (rest, "", "")
            if told and isinstance(ms, int):
                found += [before, ms]
                rest = after
        return [*found, rest]


class ClaimPace(msgspec.Struct, frozen=True):
    """How fast a topic's jobs were claimed lately.

    `recent`: the events of the last `seconds`, which are 0 if unknown.
    `waiting`: how many claims wait in this process.
    `limit`: jobs a second that the topic hands out, 0 for no limit.
    `at_limit`: whether its tokens are used up; `refill_ms`: when the next one comes, 0 if there is one.
    """

    recent: Recent
    seconds: float
    waiting: int
    limit: int = 0
    at_limit: bool = False
    refill_ms: int = 0

    @property
    def nobody_claims(self) -> bool:
        """Whether nobody claims, as far as can be seen: not where a look took too long."""
        idle = self.recent.idle_ms
        return self.seconds > 0 and not (self.waiting or self.at_limit or (idle is not None and idle < IDLE_MS))

    @property
    def rate(self) -> float:
        """Jobs claimed a second, since the first claim of that time."""
        span = self.recent.span_ms
        return 0.0 if span is None else self.recent.claimed / max(span / 1000, 0.001)


class Ahead(msgspec.Struct, frozen=True):
    """How many jobs are handed out before one. `at_least`: there may be more."""

    jobs: int
    at_least: bool


class TenantRoom(msgspec.Struct, frozen=True):
    """How many jobs a tenant may have in flight, and how many it has."""

    tenant: str
    limit: int
    held: int

    @property
    def full(self) -> bool:
        """Whether its jobs have to wait."""
        return self.held >= self.limit


class Facts(msgspec.Struct):
    """What explains a job beside its row. A field that does not matter for the job's state keeps its default."""

    control: Control
    head: GroupHead | None = None  # of the group, for one that is blocked
    room: TenantRoom | None = None  # of a tenant that has a limit
    pace: ClaimPace = msgspec.field(default_factory=lambda: ClaimPace(_NOTHING, 1.0, 0))
    ahead: Ahead = msgspec.field(default_factory=lambda: Ahead(0, False))


class Verdict(msgspec.Struct, frozen=True):
    """The reasons, and in how many ms the job will start; None if unknown."""

    reasons: list[Reason]
    wait_ms: int | None


class Waiting(msgspec.Struct, frozen=True):
    """A topic's jobs by what they wait for. `at_least`: there may be more claimable ones."""

    claimable: int
    at_least: bool
    scheduled: int
    blocked: int
    leased: int


def of_job(row: JobNow, facts: Facts) -> Verdict:
    """Why a job is not running."""
    over = [*_cancel_reasons(row)] or [*_end_reasons(row)]
    if over:
        return Verdict(over, None)
    paused = [] if row.state == "leased" else [*_pause_reasons(row.tenant, facts.control)]
    reasons = [*paused, *_group_reasons(facts.head), *_own_reasons(row)]
    if row.state not in {"ready", "scheduled"} or row.spent:
        return Verdict(reasons, None)
    # Until when a pause or a limit keeps it back, nobody can tell.
    kept_back = bool(paused) or (facts.room is not None and facts.room.full)
    turn = None if kept_back else _turn_ms(facts.pace, facts.ahead)
    reasons += _turn_reasons(facts, turn)
    if not reasons:
        reasons.append(Reason(ReasonCode.NEXT, "Nothing is before it: the next claim of this topic gets it."))
    return Verdict(reasons, None if turn is None else max(row.visible_ms - row.now_ms, turn))


def of_group(head: GroupHead, verdict: Verdict | None) -> Verdict:
    """Why a group is stuck. `verdict` is that of its first job, None if the group has none."""
    if verdict is not None:
        return verdict
    if head.before == 0:
        return Verdict([Reason(ReasonCode.EMPTY, "No job of this group waits or is out.", {"behind": 0})], None)
    return Verdict([*_group_reasons(replace(head, before=0))], None)


def of_topic(waiting: Waiting, control: Control, pace: ClaimPace, stuck: StuckGroups = NOT_STUCK) -> Verdict:
    """Why a topic's jobs are not running; the wait is that of a job that came now."""
    reasons = [*_pause_reasons(None, control)]
    if control.paused_tenants:
        text = f"Paused tenants: {', '.join(control.paused_tenants[:10])}{', …' * (len(control.paused_tenants) > 10)}."
        reasons.append(Reason(ReasonCode.PAUSED, text, {"tenants": len(control.paused_tenants)}))
    if stuck.groups:
        numbers: dict[str, object] = {"groups": stuck.groups, "behind": stuck.behind, "for_ms": stuck.ms}
        reasons.append(Reason(ReasonCode.BLOCKED, stuck_sentence(stuck), numbers))
    ahead = Ahead(waiting.claimable, waiting.at_least)
    turn = None if control.paused else _turn_ms(pace, ahead)
    if waiting.claimable == 0:
        parts = [
            f"{count} {word}"
            for count, word in (
                (waiting.scheduled, "scheduled for later"),
                (waiting.blocked, "behind the heads of their groups"),
                (waiting.leased, "leased"),
            )
            if count
        ]
        text = f"No job could be claimed now: {', '.join(parts)}." if parts else "There are no jobs."
        numbers = {
            "scheduled": waiting.scheduled,
            "blocked": waiting.blocked,
            "leased": waiting.leased,
        }
        reasons.append(Reason(ReasonCode.EMPTY, text, numbers))
    else:
        reasons += _claimer_reasons(pace)
        reasons += _limit_reasons(pace)
        reasons.append(_turn_reason(pace, ahead, "to be claimed now", turn))
    return Verdict(reasons, turn)


def of_dead_letter(place: tuple[str, int] | None, deliveries: int, error: str | None, at_ms: int | None) -> Reason:
    """The reason of a job that became a dead letter. `place` is None if the caller may not know it."""
    topic, seq = place or (None, None)
    where = "" if place is None else f" (job {seq} of {topic})"
    text = f"It is a dead letter{where} after {_times(deliveries)}: {_last_error(error)}"
    numbers: dict[str, object] = {"topic": topic, "seq": seq, "deliveries": deliveries, "error": error, "at": at_ms}
    return Reason(ReasonCode.DEAD_LETTERED, text, numbers)


def _end_reasons(row: JobNow) -> Iterator[Reason]:
    numbers: dict[str, object] = {"deliveries": row.deliveries, "at": row.updated_ms}
    if row.state == "failed":
        yield Reason(ReasonCode.FAILED, f"It failed after {_times(row.deliveries)}: {_error(row)}", numbers)
    elif row.state == "expired":
        at = row.expires_ms or row.updated_ms
        yield Reason(
            ReasonCode.EXPIRED,
            f"Its time to live was over at {rfc3339(at)}, before anybody was done with it.",
            {"deliveries": row.deliveries, "at": at},
        )


def _cancel_reasons(row: JobNow) -> Iterator[Reason]:
    if row.cancelled and row.state == "leased":
        left = row.visible_ms - row.now_ms
        yield Reason(
            ReasonCode.CANCELLED,
            f"It was cancelled, and {row.node or 'a holder without a name'} still has it: it ends with the lease, in "
            f"{duration(left)} unless that is extended.",
            {"node": row.node, "until": row.visible_ms, "in_ms": left},
        )
    elif row.cancelled:
        yield Reason(
            ReasonCode.CANCELLED,
            f"It was cancelled, and its lease ended at {rfc3339(row.visible_ms)}. "
            "The next claim or sweep takes it out.",
            {"node": row.node, "until": row.visible_ms, "in_ms": 0},
        )


def _pause_reasons(tenant: str | None, control: Control) -> Iterator[Reason]:
    """Pauses: of the topic, and of the job's tenant."""
    if control.paused:
        yield Reason(ReasonCode.PAUSED, "The topic is paused: nothing of it is handed out until it is resumed.")
    elif tenant is not None and tenant in control.paused_tenants:
        yield Reason(
            ReasonCode.PAUSED,
            f"Tenant {tenant!r} is paused: nothing of it is handed out until it is resumed.",
            {"tenant": tenant},
        )


def _own_reasons(row: JobNow) -> Iterator[Reason]:
    """Reasons in the job itself: its deliveries, its time, its lease."""
    left = row.visible_ms - row.now_ms
    if row.spent and row.state != "leased":
        yield Reason(
            ReasonCode.EXHAUSTED,
            f"The last of {_times(row.max_deliveries)} is over: {_error(row)} The next claim or sweep takes it out.",
            {"deliveries": row.deliveries, "max_deliveries": row.max_deliveries},
        )
    if row.state == "scheduled" or (row.state == "blocked" and left > 0):
        why = "" if row.deliveries == 0 else f" It was returned after {_times(row.deliveries)}: {_error(row)}"
        yield Reason(
            ReasonCode.SCHEDULED,
            f"It is to be had from {rfc3339(row.visible_ms)}, in {duration(left)}.{why}",
            {"until": row.visible_ms, "in_ms": left, "deliveries": row.deliveries},
        )
    elif row.state == "leased":
        since = row.leased_ms or row.now_ms
        yield Reason(
            ReasonCode.LEASED,
            f"It is running: leased by {row.node or 'a holder without a name'} for {duration(row.now_ms - since)}, "
            f"and for {duration(left)} more unless that is extended. Delivery {row.deliveries}.{_progress(row)}",
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
    """The job before it in its group."""
    if head is None:
        return
    behind = f" {head.before} more of the group come before it." if head.before else ""
    numbers: dict[str, object] = {"head": head.seq, "state": head.state, "until": head.until_ms, "before": head.before}
    if head.seq is None:
        text = "The job before it in its group has gone: the next is being let through."
    elif head.state == "leased":
        text = f"Its group's job {head.seq} is out: leased by {head.node or 'a holder without a name'}"
        text += f" until {rfc3339(head.until_ms or 0)}, delivery {head.deliveries}."
        numbers["node"] = head.node
    elif head.state == "scheduled":
        text = f"Its group's job {head.seq} comes first, and is to be had from {rfc3339(head.until_ms or 0)} only."
    elif head.state == "ready":
        text = f"Its group's job {head.seq} comes first, and waits to be claimed: explain that one."
    else:
        text = f"Its group's job {head.seq} came first, and is {head.state}: the next claim or sweep takes it out."
    yield Reason(ReasonCode.BLOCKED, text + behind, numbers)


def _turn_reasons(facts: Facts, turn_ms: int | None) -> Iterator[Reason]:
    """Reasons that hold up all jobs which wait in this topic."""
    pace, ahead, room = facts.pace, facts.ahead, facts.room
    yield from _claimer_reasons(pace)
    if room is not None and room.full:
        text = f"Tenant {room.tenant!r} has {room.held} jobs in flight, and may have {room.limit}."
        numbers: dict[str, object] = {"tenant": room.tenant, "limit": room.limit, "in_flight": room.held}
        yield Reason(ReasonCode.TENANT_LIMIT, text, numbers)
    yield from _limit_reasons(pace)
    if ahead.jobs:
        yield _turn_reason(pace, ahead, "handed out before it", turn_ms)


def _claimer_reasons(pace: ClaimPace) -> Iterator[Reason]:
    if not pace.nobody_claims:
        return
    idle = pace.recent.idle_ms
    seconds = pace.seconds if idle is None else idle / 1000
    text = f"Nobody has claimed a job of this topic for {duration(seconds * 1000)}{' or longer' * (idle is None)}."
    yield Reason(ReasonCode.NO_CLAIMER, text, {"idle_ms": round(seconds * 1000), "at_least": idle is None})


def _limit_reasons(pace: ClaimPace) -> Iterator[Reason]:
    if pace.at_limit:
        refill = f"One more may go in {duration(pace.refill_ms)}." if pace.refill_ms else "One more may go now."
        yield Reason(
            ReasonCode.THROUGHPUT_LIMIT,
            f"The topic hands out {pace.limit} jobs a second at most, and has just handed out as many. {refill}",
            {"limit": pace.limit, "refill_ms": pace.refill_ms},
        )


def _turn_reason(pace: ClaimPace, ahead: Ahead, what: str, turn: int | None) -> Reason:
    speed = "" if turn is None else f" Claims take {pace.rate:.3g} a second: about {duration(turn)}."
    many = f"{'at least ' * ahead.at_least}{ahead.jobs} job{' is' if ahead.jobs == 1 else 's are'}"
    numbers: dict[str, object] = {
        "ahead": ahead.jobs,
        "at_least": ahead.at_least,
        "per_second": round(pace.rate, 3),
        "wait_ms": turn,
    }
    return Reason(ReasonCode.BEHIND, f"{many[0].upper()}{many[1:]} {what}.{speed}", numbers)


def _turn_ms(pace: ClaimPace, ahead: Ahead) -> int | None:
    """In how many ms the job behind those is claimed; None if too little is claimed to say."""
    if pace.nobody_claims or (ahead.jobs and not pace.rate):
        return None
    return max(round(ahead.jobs / pace.rate * 1000) if ahead.jobs else 0, pace.refill_ms)


def _error(row: JobNow) -> str:
    return _last_error(row.last_error)


def _last_error(error: str | None) -> str:
    return "its lease ended without a word." if error is None else f'"{error[:200]}".'


def _progress_numbers(row: JobNow) -> dict[str, object]:
    said = row.progress
    return {} if said is None else {"progress": {"percent": said.percent, "note": said.note, "at": said.at_ms}}


def _progress(row: JobNow) -> str:
    said = row.progress
    if said is None:
        return ""
    note = "" if said.note is None else f': "{said.note[:200]}"'
    return f" Its holder says: {said.percent} per cent{note}."


def _times(deliveries: int) -> str:
    return f"{deliveries} deliver{'y' if deliveries == 1 else 'ies'}"
