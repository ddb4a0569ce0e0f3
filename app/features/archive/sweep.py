"""The archive's sweep: days and rows that are past their replay window, and rows of topics that are gone."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import asyncpg

from app.base.db import sql
from app.base.pace import Pace
from app.features.archive import archive
from app.kernel import purges

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.engine import Engine

BATCH: Final = 1_000  # rows of one transaction
PAGE: Final = 500
COUNTED: Final = 1_000_000  # rows of days that go as a whole

log = logging.getLogger(__name__)

_SQL: Final = sql.load_all(__package__)
_KEPT = _SQL["archive_kept"]
_LEAVING = _SQL["archive_leaving"]
_OVERDUE = _SQL["archive_overdue"]


async def sweep(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Delete what is past its topic's replay window: how many rows; of days that went as a whole, up to COUNTED.

    A day goes once no topic's window reaches into it and, where days are kept as files, it is. Rows that lie in a day
    which goes by tomorrow are left to it; nobody is shown them. A day that is being read for long goes another time.
    """
    pace = pace or Pace()
    kept: int | None = await pools.rest.fetchval(_KEPT)
    if kept is not None:
        try:
            await pace.batch(partial(_drop, pools, kept, engine.to_files))
        except asyncpg.LockNotAvailableError:
            log.info("days of the archive that are to go are being read, and go another time")
    topic, topic_id = "", 0
    while found := await pools.rest.fetch(_OVERDUE, topic, topic_id, PAGE, kept, engine.to_files):
        for topic, topic_id, since, before in found:
            if since < before:
                await pace.drain(partial(archive.delete, pools.rest, (topic, topic_id), since, before, BATCH), BATCH)
    await archive.sweep_replays(pools.rest, BATCH)
    return pace.moved


async def _drop(pools: Pools, kept: int, to_files: bool) -> int:
    rows: int = await pools.rest.fetchval(_LEAVING, kept, COUNTED, to_files)
    await purges.drop_days(pools.rest, "archive", kept, only_archived=to_files)
    return rows
