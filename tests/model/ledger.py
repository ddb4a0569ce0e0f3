"""The ledger alone: replaying it leads to where every job is, and never through a state that can't be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

OUT = {"acked", "dead_lettered", "failed", "expired", "deleted", "superseded"}


@dataclass(slots=True)
class Track:
    """What the ledger has told of one job so far."""

    word: str = "waiting"
    deliveries: int = 0
    lease: str | None = None
    node: str | None = None
    until: datetime | None = None


def replay(events: Iterable[Any]) -> dict[int, Track]:
    """Where one topic's jobs are after these rows of holdfast.lease_events, in order of `at`: by seq."""
    tracks: dict[int, Track] = {}
    for row in events:
        event, seq, lease = row["event"], row["seq"], row["lease_id"] and row["lease_id"].hex
        if event == "enqueued":
            assert seq not in tracks, "enqueued once"
            tracks[seq] = Track()
            continue
        track = tracks[seq]
        told = f"{seq}: {event} after {track.word}"
        if event == "claimed":
            assert track.word in ("waiting", "leased"), told
            assert track.until is None or track.until < row["at"], f"{told}, before its time"
            assert row["deliveries"] == track.deliveries + 1, told
            tracks[seq] = Track("leased", row["deliveries"], lease, row["node"], row["until"])
            continue
        # Whatever else happens to a lease names it.
        assert (lease, row["node"]) == (track.lease, track.node), told
        assert row["deliveries"] == track.deliveries, told
        if event in ("extended", "released", "acked"):
            assert track.word == "leased", told
        if event == "extended":
            track.until = row["until"]
        elif event == "updated":
            assert track.word in ("waiting", "leased"), told
            if track.word == "leased":  # which had ended: it waits again
                tracks[seq] = Track("waiting", row["deliveries"], until=row["until"])
        elif event == "released":
            tracks[seq] = Track("waiting", row["deliveries"], until=row["until"])
        else:
            assert event in OUT, told
            assert track.word not in OUT or (track.word in ("failed", "expired") and event == "deleted"), told
            tracks[seq] = Track(event, row["deliveries"])
    return tracks
