"""What happened to a job, as its ledger tells: events put into deliveries, with how long each was, and how it ended.

Pure: where events come from is app/kernel/ledger.py's business. docs/semantics.md, section 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from app.kernel.ledger import Event, detail_for

# What ends a delivery by its holder's word, or by somebody else's; and how it looks.
_ENDS: Final = {
    "acked": ("completed", "ok"),
    "released": ("returned", "watch"),
    "failed": ("failed", "bad"),
    "dead_lettered": ("became a dead letter", "bad"),
    "expired": ("expired", "watch"),
    "cancelled": ("cancelled", "watch"),
    "superseded": ("superseded by a newer job of its key", "watch"),
    "deleted": ("deleted", "watch"),
}
_WORDS: Final = {
    "enqueued": "Enqueued",
    "unblocked": "Came out behind its group's head",
    "updated": "Changed",
    "requeued": "Requeued",
    "extended": "Lease extended",
}
_UNTIL: Final = {
    "claimed": "until",
    "extended": "until",
    "released": "to be had again from",
    "acked": "its result is kept until",
}
SILENT: Final = "its lease ended in silence"
BARS: Final = 60  # parts of a life that are drawn


class Step(msgspec.Struct):
    """Something that happened. Of a delivery: `delivery` is which, `ms` for how long its holder had it, None while that
    goes on or where it is not known; `ended` in a word, "" while it runs; `extended`, how often. `until_ms` is a time
    that it set, and `until` says what for. `error`: what its holder said."""

    at_ms: int
    title: str
    delivery: int = 0
    node: str | None = None
    until: str = ""
    until_ms: int | None = None
    ms: int | None = None
    ended: str = ""
    tone: str = ""
    error: str | None = None
    note: str | None = None
    extended: int = 0


def steps(events: Sequence[Event], now_ms: int, covered: Callable[[str], bool]) -> list[Step]:
    """What happened, the oldest first. `covered`: topics that may be named."""
    found: list[Step] = []
    held: Step | None = None
    for event in events:
        if held is not None and event.event == "extended":
            held.until_ms, held.extended = event.until_ms, held.extended + 1
            continue
        if event.event == "updated" and event.detail == "to be cancelled":
            found.append(Step(event.at_ms, "Cancelled; its holder is told", node=event.node))
            continue
        by_word = held is not None and event.event in _ENDS and not _late(held, event)
        if held is not None:
            _end(held, event) if by_word else _silence(held)
            held = None
        if event.event == "claimed":
            held = Step(event.at_ms, "Delivery", event.deliveries, event.node, _UNTIL["claimed"], event.until_ms)
            found.append(held)
        elif not by_word:
            found.append(_other(event, covered))
    if held is not None and held.until_ms is not None and held.until_ms < now_ms:
        _silence(held)
    return found


def strip(found: Sequence[Step], now_ms: int) -> list[tuple[str, int]]:
    """The job's life as parts of it, in ms: waiting for a claim, and in somebody's hands. The latest BARS of them; none
    where it was never claimed."""
    parts = list(_parts(found, now_ms))[-BARS:]
    return parts if any(state == "in-flight" for state, _ in parts) else []


def _parts(found: Sequence[Step], now_ms: int) -> Iterator[tuple[str, int]]:
    waits_from = found[0].at_ms if found else now_ms
    for step in found:
        if step.delivery:
            yield "ready", max(step.at_ms - waits_from, 0)
            took = max(now_ms - step.at_ms if step.ms is None else step.ms, 1)
            yield "in-flight", took
            waits_from = step.at_ms + took
    if found and found[-1].ended in {_ENDS["released"][0], SILENT}:
        yield "ready", max(now_ms - waits_from, 0)


def _late(held: Step, event: Event) -> bool:
    """Whether the lease had ended by its deadline before this came. Another of its job may have come since, too."""
    return event.event == "superseded" or (held.until_ms is not None and event.at_ms > held.until_ms)


def _end(held: Step, event: Event) -> None:
    held.ended, held.tone = _ENDS[event.event]
    held.ms, held.error = event.at_ms - held.at_ms, event.detail
    held.until, held.until_ms = _UNTIL.get(event.event, ""), event.until_ms


def _silence(held: Step) -> None:
    held.ended, held.tone = SILENT, "bad"
    held.ms = None if held.until_ms is None else held.until_ms - held.at_ms
    held.until_ms = None


def _other(event: Event, covered: Callable[[str], bool]) -> Step:
    word, tone = _ENDS.get(event.event, ("", ""))
    title = _WORDS.get(event.event) or f"{word[:1].upper()}{word[1:]}" or event.event
    said = detail_for(event, covered)
    is_error = event.event in {"released", "failed", "dead_lettered"}
    return Step(
        event.at_ms,
        title,
        node=event.node,
        until=_UNTIL.get(event.event, "to be had from"),
        until_ms=event.until_ms,
        tone=tone,
        error=said if is_error else None,
        note=None if is_error else said,
    )
