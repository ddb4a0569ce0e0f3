"""Reading: of logs, and of queues without claiming."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from holdfast.models.marks import PAYLOAD, Named


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """A record. `tag` is there where tags were asked for."""

    seq: Annotated[int, Named("$seq")]
    at: Annotated[datetime, Named("$ts")]
    data: Annotated[Any, PAYLOAD] = None
    node: Annotated[str | None, Named("$node")] = None
    tag: Annotated[str | None, Named("$tag")] = None
    meta: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """What this reader has missed, for good: at most so many, from `gap_from` to `gap_to`."""

    gap_from: int
    gap_to: int
    reason: Literal["cap", "ttl", "mixed", "recreated", "from_seq_too_old"]
    missed_estimate: int
    earliest_seq: int
    head_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What comes after a cursor. Go on from `next_from_seq`, and by `caught_up`, not by an empty `records`."""

    topic: str
    records: tuple[LogRecord, ...]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    lag: int
    tombstone: LostRecords | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsDeleted:
    """How many are gone, and what is left. `marked`: jobs that are leased and were cancelled under their holders."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
    marked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTopic:
    """Where a watch of a topic begins."""

    from_seq: int
    head_seq: int
    earliest_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A watch of several topics, kept by the service for five minutes without a connection."""

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: Mapping[str, WatchedTopic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """News of a watched topic: its records after `from_seq`, up to `to_seq`."""

    topic: str
    records: tuple[LogRecord, ...]
    from_seq: int
    to_seq: int
    head_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone(LostRecords):
    """News of a watched topic: some of it is lost."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """News of a watched topic: its reader has everything now."""

    topic: str
    head_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """News of a watched topic: the last. The other topics go on. `head_seq`: the last seq that the watch knew of."""

    topic: str
    head_seq: int
    reason: str


WatchNews: TypeAlias = Records | Tombstone | CaughtUp | TopicDeleted
