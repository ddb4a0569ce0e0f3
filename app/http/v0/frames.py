"""What the data of a stream's events is, by their names. For the description alone: the routes put frames together from
pieces, and tests hold what they send against these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from app.http.v0.bodies import JobShown, Tombstone


class JobFrame(JobShown, kw_only=True):
    """A job that was leased to this stream."""

    topic: str


class RecordTold(msgspec.Struct, kw_only=True):
    """A record; without data where include_data is false."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    node: str | UnsetType = msgspec.field(name="$node", default=UNSET)
    tag: str | UnsetType = msgspec.field(name="$tag", default=UNSET)
    data: Raw | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET


class RecordsFrame(msgspec.Struct):
    """Records after from_seq, up to to_seq, the last seq that was looked at."""

    topic: str
    records: list[RecordTold]
    from_seq: int
    to_seq: int
    head_seq: int


class TombstoneFrame(Tombstone, kw_only=True):
    """Records were lost before this reader came: as a diff's tombstone."""

    topic: str


class CaughtUpFrame(msgspec.Struct):
    """A reader that was behind has everything now."""

    topic: str
    head_seq: int


class TopicDeletedFrame(msgspec.Struct):
    """The topic was deleted, or made anew: nothing more comes of it. head_seq: the last seq that this watch knew of."""

    topic: str
    head_seq: int
    reason: Literal["deleted"]


class ErrorFrame(msgspec.Struct):
    """Advice where the code is 429; else why the stream ends. `topic`: of a work stream."""

    code: int
    error: str
    message: str
    topic: str | UnsetType = UNSET


WORK: Final[Mapping[str, type[msgspec.Struct]]] = {"job": JobFrame, "error": ErrorFrame}
WATCH: Final[Mapping[str, type[msgspec.Struct]]] = {
    "record": RecordsFrame,
    "tombstone": TombstoneFrame,
    "caught-up": CaughtUpFrame,
    "topic-deleted": TopicDeletedFrame,
    "error": ErrorFrame,
}
