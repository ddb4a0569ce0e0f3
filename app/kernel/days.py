"""Days of tables by day that go as a whole; where days are to be kept as files, only once they are."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from app.base.db import sql

if TYPE_CHECKING:
    import asyncpg

    from app.base.db.pool import Pool

log = logging.getLogger(__name__)

_SQL: Final = sql.load_all(__package__)
_DROP = _SQL["drop_partitions"]
_DROP_RESULTS = _SQL["drop_results"]


async def drop(rest: Pool, table: str, kept: int, *, only_archived: bool) -> int:
    """Drop the days that lie more than `kept` days back: how many. Raises what the database raises."""
    return _told(table, await rest.fetchrow(_DROP, table, kept, only_archived))


async def drop_results(rest: Pool, *, only_archived: bool) -> int:
    """Drop the days of results that nobody is shown any more: how many. Raises what the database raises."""
    return _told("results", await rest.fetchrow(_DROP_RESULTS, only_archived))


def _told(table: str, row: asyncpg.Record | None) -> int:
    assert row is not None
    if row["held"]:
        log.warning(
            "days of %s that are due to go, and stay until they are in files: %d; run the pipeline `archive`",
            table,
            row["held"],
        )
    gone: int = row["gone"]
    return gone
