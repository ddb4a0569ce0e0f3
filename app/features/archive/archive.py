"""What became of the jobs of replayable topics: read, replayed, deleted. docs/semantics.md, section 20."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Final

import asyncpg
import msgspec
from msgspec.structs import replace

from app.base.db import sql
from app.kernel.model import Connection, Hideable, Topic

_SQL: Final = sql.load_all(__package__)
_PAGE = _SQL["page_archive"]
_COUNT = _SQL["count_archive"]
_DELETE = _SQL["delete_archived"]
_BEGIN = _SQL["begin_replay"]
_FIND = _SQL["find_replay"]
_REPLAY = _SQL["replay"]
_SWEEP = _SQL["sweep_replays"]

JOIN_MS: Final = 3_600_000  # for so long after its last batch, a replay that was cut off is gone on with
THE_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)  # of all times
PAGE_BYTES: Final = 16 * 1024 * 1024  # of payloads


class Place(msgspec.Struct, frozen=True):
    """A place in the order of a topic's archive."""

    time: datetime
    seq: int


class Part(msgspec.Struct, frozen=True):
    """What of a topic's archive is wanted: what finished within the last `window_ms`, 0 for all; before a place; and of
    that, all but the first `offset`."""

    window_ms: int = 0
    before: Place | None = None
    offset: int = 0


class Archived(Hideable, frozen=True):
    """A completed job. `metadata` is the text of a JSON object; times are aware; `first_*`: the job that a dead letter
    was at first. `more`: it has one after it. `hidden`: what is in it is, from whoever looks."""

    SECRET: ClassVar = {"payload": b"", "metadata": None}

    seq: int
    created_at: datetime
    finished_at: datetime
    deliveries: int
    key: str | None
    content_type: str | None
    original_topic: str | None
    original_seq: int | None
    first_topic_id: int | None
    first_seq: int | None
    metadata: str | None
    payload: bytes
    more: bool
    hidden: bool = False


async def page(db: Connection, topic: Topic, part: Part, limit: int) -> list[Archived]:
    """Up to `limit` completed jobs, the last completed first. A page ends early that has PAGE_BYTES of payloads."""
    time, seq = (None, None) if part.before is None else (part.before.time, part.before.seq)
    rows = await db.fetch(_PAGE, topic.name, topic.id, part.window_ms, time, seq, limit, part.offset, PAGE_BYTES)
    return [Archived(*row) for row in rows]


async def count(db: Connection, topic: Topic, window_ms: int, most: int) -> int:
    """How many there are; `most` if there are so many or more."""
    rows: int = await db.fetchval(_COUNT, topic.name, topic.id, window_ms, most)
    return rows


async def delete(db: Connection, topic: tuple[str, int], since: datetime, before: datetime, limit: int) -> int:
    """Delete, for good, what finished in since <= time < before, the oldest first, `limit` rows at most: how many.

    `topic` is a name and an id: it may be gone.
    """
    rows: int = await db.fetchval(_DELETE, *topic, since, before, limit)
    return rows


class Replay(msgspec.Struct, frozen=True):
    """A replay under way: of what was asked for (None: the whole window), its bounds, where it is, and how many jobs
    were enqueued and how many skipped so far."""

    asked_from: datetime | None
    from_time: datetime
    until_time: datetime
    at: Place
    enqueued: int
    skipped: int
    done: bool = False
    joined: bool = False


class Batch(msgspec.Struct, frozen=True):
    """The replay as it is after a batch, and how many jobs that had, and bytes of their payloads."""

    run: Replay
    jobs: int
    payload_bytes: int


class Most(msgspec.Struct, frozen=True):
    """What one batch of a replay holds at most. One payload may be larger."""

    jobs: int = 1_000
    payload_bytes: int = 8 * 1024 * 1024


async def begin(db: Connection, topic: Topic, asked_from: datetime | None, window_ms: int) -> Replay | None:
    """Begin a replay, or join one of the same that was begun and has not ended; window 0 for no end of it.

    None: `asked_from` lies before the window, or in the future.
    """
    row = await db.fetchrow(_BEGIN, topic.name, topic.id, asked_from, window_ms, JOIN_MS)
    if row is None:
        return None
    place = Place(row["after_time"], row["after_seq"])
    return Replay(
        asked_from, row["from_time"], row["until_time"], place, row["enqueued"], row["skipped"], joined=row["joined"]
    )


async def replay(db: Connection, topic: Topic, run: Replay, most: Most, ttl_ms: int) -> Batch | None:
    """Enqueue the next batch; done where it had none.

    None: the replay is at another place already, through another process. Raises asyncpg's errors; one for a missing
    relation when the topic was deleted meanwhile.
    """
    row = await db.fetchrow(
        _REPLAY,
        *(topic.name, topic.id, topic.sequence, run.asked_from, run.until_time, run.at.time, run.at.seq),
        *(most.jobs, most.payload_bytes, ttl_ms),
    )
    return None if row is None else Batch(_further(run, row), row["count"], row["bytes"])


async def look(db: Connection, topic: Topic, run: Replay) -> Replay | None:
    """A replay as it is now. None: it is over, and another of the same was begun since."""
    row = await db.fetchrow(_FIND, topic.name, topic.id, run.asked_from, run.until_time)
    return None if row is None else _further(run, row)


async def sweep_replays(db: Connection, limit: int) -> int:
    """Forget replays that can't be joined any more, at most `limit`: how many."""
    gone: int = await db.fetchval(_SWEEP, JOIN_MS, limit)
    return gone


def _further(run: Replay, row: asyncpg.Record) -> Replay:
    place = Place(row["after_time"], row["after_seq"])
    return replace(run, at=place, enqueued=row["enqueued"], skipped=row["skipped"], done=row["done"])
