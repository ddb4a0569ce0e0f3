"""Records of logs, and of queues read without claiming."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from holdfast.models.marks import PAYLOAD, Named


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """A record. `tag` is None if tags were not requested."""

    seq: Annotated[int, Named("$seq")]
    at: Annotated[datetime, Named("$ts")]
    data: Annotated[Any, PAYLOAD] = None
    node: Annotated[str | None, Named("$node")] = None
    tag: Annotated[str | None, Named("$tag")] = None
    meta: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """Records that this reader has lost, from `gap_from` to `gap_to`; at most `missed_estimate`."""

    gap_from: int
    gap_to: int
    reason: Literal["cap", "ttl", "mixed", "recreated", "from_seq_too_old"]
    missed_estimate: int
    earliest_seq: int
    head_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Records after a seq. Continue from `next_from_seq` until `caught_up`; `records` may be empty before."""

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
    """How many records were deleted, and what is left. `marked`: leased jobs that were marked as cancelled."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
    marked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTopic:
    """The position at which a watch of a topic begins."""

    from_seq: int
    head_seq: int
    earliest_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A watch of several topics. It expires after five minutes without a connection."""

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: Mapping[str, WatchedTopic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """A watched topic's records after `from_seq`, up to `to_seq`."""

    topic: str
    records: tuple[LogRecord, ...]
    from_seq: int
    to_seq: int
    head_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone(LostRecords):
    """A watched topic has lost records that the reader has not seen."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """The reader has received all records of a watched topic."""

    topic: str
    head_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """A watched topic was deleted. The watch continues with the other topics. `head_seq`: its last known seq."""

    topic: str
    head_seq: int
    reason: str


WatchNews: TypeAlias = Records | Tombstone | CaughtUp | TopicDeleted
