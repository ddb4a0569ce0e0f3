"""The ledger alone: where its events lead a job, and which of them can't follow on another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tools.history.history import Event

OVER: Final = frozenset({"acked", "dead_lettered", "failed", "expired", "deleted", "superseded", "cancelled"})
KEPT: Final = frozenset({"failed", "expired"})  # over, and still in the table
HOLDERS: Final = frozenset({"extended", "released", "acked"})
GIVEN_BACK: Final = ("released", "superseded")  # by a return, which may take back the delivery
MARKED: Final = "to be cancelled"  # of an `updated`: its holder may be at work, and its group goes on


@dataclass(slots=True)
class Track:
    """What the ledger has told of one job so far. `word`: waiting, leased, how it ended, or nothing."""

    word: str = ""
    deliveries: int = 0
    lease: str | None = None
    node: str | None = None
    until: float | None = None


@dataclass(slots=True)
class Lease:
    """A claim, the extensions that followed it, and what came next."""

    claimed: Event
    extended: list[Event] = field(default_factory=list)
    closed: Event | None = None

    @property
    def until(self) -> float:
        """Its last deadline."""
        return (self.extended or [self.claimed])[-1].until or 0.0


def replay(events: Iterable[Event], impossible: list[str]) -> Track:
    """Where one job is after all its events, in their order. What can't be is added to `impossible`."""
    track = Track()
    for event in events:
        wrong = _wrong(track, event)
        if wrong:
            impossible.append(f"{event}, after {track.word or 'nothing'}: {wrong}")
        track = _after(track, event)
    return track


def leads_out(event: Event) -> bool:
    """Whether a job leaves its topic by it, or ends in it."""
    return event.event in OVER or (event.event == "requeued" and (event.detail or "").startswith("to "))


def leases(events: Iterable[Event]) -> Iterator[Lease]:
    """Those that one job's events tell of."""
    current: Lease | None = None
    for event in events:
        if event.event == "claimed":
            if current is not None:
                current.closed = event
            current = Lease(event)
            yield current
        elif current is not None and event.event == "extended":
            current.extended.append(event)
        elif current is not None and not (event.event == "updated" and event.until is None):
            current.closed = event
            current = None


def _wrong(track: Track, event: Event) -> str:
    """Why it can't follow."""
    away = track.word not in ("waiting", "leased"), "it is not there"
    match event.event:
        case "enqueued":
            found = [(bool(track.word), "a job is enqueued once")]
        case "requeued" if not leads_out(event):
            found = [(track.word not in (*KEPT, "dead_lettered"), "it has not died")]
        case "deleted" if track.word in KEPT:
            found = []
        case "claimed":
            early = track.until is not None and event.at <= track.until
            counts = event.deliveries == track.deliveries + 1
            found = [away, (early, f"its time is {track.until}"), (not counts, "a claim is one delivery")]
        case _:  # whatever else happens to a lease names it, but for a deletion
            named = (event.lease, event.node) == (track.lease, track.node) or event.event == "deleted"
            counts = track.deliveries - event.deliveries in ((0, 1) if event.event in GIVEN_BACK else (0,))
            free = event.event in HOLDERS and track.word != "leased"
            found = [away, (not named, f"the lease was {track.lease}"), (free, "nobody holds it")]
            found.append((not counts, "only a claim counts"))
    return next((why for wrong, why in found if wrong), "")


def _after(track: Track, event: Event) -> Track:
    if leads_out(event):
        return Track(event.event, event.deliveries)
    match event.event:
        case "claimed":
            return Track("leased", event.deliveries, event.lease, event.node, event.until)
        case "extended":
            return Track("leased", track.deliveries, track.lease, track.node, event.until)
        case "updated" if event.until is None:
            return track  # written anew as it waits, or marked
        case _:
            return Track("waiting", event.deliveries, until=event.until)
