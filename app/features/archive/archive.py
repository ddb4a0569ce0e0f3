"""Reads and deletes the archive: the completed jobs of replayable topics. docs/semantics.md, section 20."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import asyncpg
import msgspec

from app.base.db import sql
from app.base.pace import Pace
from app.kernel import purges
from app.kernel.model import Connection, Hideable, Topic

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.engine import Engine

_SQL: Final = sql.load_all(__package__)
_PAGE = _SQL["page_archive"]
_COUNT = _SQL["count_archive"]
_DELETE = _SQL["delete_archived"]
_SWEEP_REPLAYS = _SQL["sweep_replays"]
_KEPT = _SQL["archive_kept"]
_LEAVING = _SQL["archive_leaving"]
_OVERDUE = _SQL["archive_overdue"]

JOIN_MS: Final = 3_600_000  # an interrupted replay can be continued for this long after its last batch
THE_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
PAGE_BYTES: Final = 16 * 1024 * 1024  # of payloads
BATCH: Final = 1_000  # rows in one transaction
TOPICS: Final = 500  # in one query
COUNTED: Final = 1_000_000  # rows of dropped days that are counted at most

log = logging.getLogger(__name__)


class ArchivePlace(msgspec.Struct, frozen=True):
    time: datetime
    seq: int


class ArchivePart(msgspec.Struct, frozen=True):
    """A part of a topic's archive, newest job first.

    `window_ms`: only jobs completed within this time, 0 for all. `before`: only jobs before this place.
    `offset`: skip this many jobs.
    """

    window_ms: int = 0
    before: ArchivePlace | None = None
    offset: int = 0


class ArchivedJob(Hideable, frozen=True):
    """A completed job.

    `metadata`: a JSON object as text. `first_*`: the job that a dead letter was at first.
    `more`: whether another job follows. `hidden`: whether the reader may not see payload and metadata.
    """

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


async def page(db: Connection, topic: Topic, part: ArchivePart, limit: int) -> list[ArchivedJob]:
    """Up to `limit` completed jobs, newest first. A page ends early once it has PAGE_BYTES of payloads."""
    time, seq = (None, None) if part.before is None else (part.before.time, part.before.seq)
    rows = await db.fetch(_PAGE, topic.name, topic.id, part.window_ms, time, seq, limit, part.offset, PAGE_BYTES)
    return [ArchivedJob(*row) for row in rows]


async def count(db: Connection, topic: Topic, window_ms: int, most: int) -> int:
    """How many jobs there are, at most `most`."""
    rows: int = await db.fetchval(_COUNT, topic.name, topic.id, window_ms, most)
    return rows


async def delete(db: Connection, topic: tuple[str, int], since: datetime, before: datetime, limit: int) -> int:
    """Delete up to `limit` jobs that were completed in since <= time < before, oldest first. Returns how many.

    `topic`: name and id, since the topic may be gone.
    """
    rows: int = await db.fetchval(_DELETE, *topic, since, before, limit)
    return rows


async def sweep(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Delete jobs that are past their topic's replay window, or whose topic is gone.

    Returns how many. Of days dropped as a whole, at most COUNTED rows count. A day is dropped once no topic's window
    reaches into it and, if days are kept as files, its file exists. Rows of a day that will be dropped by tomorrow wait
    for that; readers don't see them. A day that is being read is dropped by a later sweep.
    """
    pace = pace or Pace()
    days: int | None = await pools.rest.fetchval(_KEPT)
    if days is not None:
        try:
            await pace.batch(partial(_drop, pools, days, engine.to_files))
        except asyncpg.LockNotAvailableError:
            log.info("days of the archive are being read: the next sweep drops them")
    topic, topic_id = "", 0
    while found := await pools.rest.fetch(_OVERDUE, topic, topic_id, TOPICS, days, engine.to_files):
        for topic, topic_id, since, before in found:
            if since < before:
                await pace.drain(partial(delete, pools.rest, (topic, topic_id), since, before, BATCH), BATCH)
    await pools.rest.execute(_SWEEP_REPLAYS, JOIN_MS, BATCH)
    return pace.moved


async def _drop(pools: Pools, days: int, to_files: bool) -> int:
    rows: int = await pools.rest.fetchval(_LEAVING, days, COUNTED, to_files)
    await purges.drop_days(pools.rest, "archive", days, only_archived=to_files)
    return rows
