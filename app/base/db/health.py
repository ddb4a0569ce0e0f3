"""How PostgreSQL stands, for a scrape: connections, space, the log and its readers, and who holds back the horizon.

What takes more than two statements on statistics views is postgres_exporter's: docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from app.base.db import horizon, sql
from app.base.db.horizon import Horizon, Kind
from app.base.metrics import catalogue

if TYPE_CHECKING:
    import asyncpg

    from app.base.db.pool import Pool
    from app.base.metrics import Labels
    from app.base.metrics.catalogue import Family

_SQL: Final = sql.load_all(__package__)
_HEALTH = _SQL["health"]

MOST_READERS: Final = 20  # slots, and standbys

Sample = tuple["Family", "Labels", float]


class Health(msgspec.Struct, frozen=True):
    """What the statement answers. `slots` and `standbys` have bytes of log by name: kept for a slot's reader, and not
    yet replayed; `wal_bytes` is None on a standby, `archive_fails` where the server archives nothing."""

    connections: int
    most_connections: int
    lock_waits: int
    bytes: int
    transaction_age: int
    multixact_age: int
    wal_bytes: int | None
    archive_fails: bool | None
    commits: int
    rollbacks: int
    deadlocks: int
    blocks_cached: int
    blocks_read: int
    slots: dict[str, int]
    standbys: dict[str, int]


async def read(db: Pool | asyncpg.Connection[asyncpg.Record]) -> list[Sample]:
    """The metrics of the server; who asks says for how long. Raises what app.base.outages.UNREACHABLE lists."""
    answer: str = await db.fetchval(_HEALTH, MOST_READERS)
    health = msgspec.json.decode(answer, type=Health)
    return [*_of_server(health), *_of_horizon(await horizon.read(db))]


def _of_server(health: Health) -> Iterator[Sample]:
    yield catalogue.CONNECTIONS, (), health.connections
    yield catalogue.CONNECTIONS_MOST, (), health.most_connections
    yield catalogue.LOCK_WAITS, (), health.lock_waits
    yield catalogue.DATABASE_BYTES, (), health.bytes
    yield catalogue.ID_AGE, ("transaction",), health.transaction_age
    yield catalogue.ID_AGE, ("multixact",), health.multixact_age
    yield catalogue.TRANSACTIONS, ("committed",), health.commits
    yield catalogue.TRANSACTIONS, ("rolled_back",), health.rollbacks
    yield catalogue.DEADLOCKS, (), health.deadlocks
    yield catalogue.BLOCKS, ("cache",), health.blocks_cached
    yield catalogue.BLOCKS, ("system",), health.blocks_read
    if health.wal_bytes is not None:
        yield catalogue.WAL, (), health.wal_bytes
    if health.archive_fails is not None:
        yield catalogue.WAL_ARCHIVE_FAILS, (), int(health.archive_fails)
    for name, kept in health.slots.items():
        yield catalogue.SLOT_KEEPS, (name,), kept
    for name, behind in health.standbys.items():
        yield catalogue.STANDBY_BEHIND, (name,), behind


def _of_horizon(found: Horizon) -> Iterator[Sample]:
    for kind in Kind:
        held = [holder for holder in found.holders if holder.kind is kind]
        yield catalogue.HORIZON_TRANSACTIONS, (kind.value,), max((holder.xmin_age for holder in held), default=0)
        ages = [holder.age_s for holder in held if holder.age_s is not None]
        if ages or not held:
            yield catalogue.HORIZON_AGE, (kind.value,), max(ages, default=0)
    for table in found.tables:
        yield catalogue.LIVE_ROWS, (table.name,), table.live_rows
        yield catalogue.DEAD_ROWS, (table.name,), table.dead_rows
