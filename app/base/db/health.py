"""PostgreSQL's state: connections, sizes, write-ahead log, replication, and the vacuum horizon.

A deleted or changed row stays in its table until no snapshot can see it. The horizon is the oldest open transaction, or
the oldest xmin of a slot, a prepared transaction or a standby. Rows that died after it can't be removed, and a queue's
rows die by the thousand each second. docs/operations/postgres.md.

Reads two statements on statistics views. postgres_exporter has more: docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from app.base.db import sql
from app.base.metrics import Labels, catalogue
from app.base.metrics.catalogue import Family
from app.base.times import duration

if TYPE_CHECKING:
    import asyncpg

    from app.base.db.pool import Pool

_SQL: Final = sql.load_all(__package__)
_HEALTH = _SQL["health"]
_HORIZON = _SQL["horizon"]

MOST_READERS: Final = 20  # slots; also standbys
MOST_HOLDERS: Final = 100
SECONDS: Final = 3.0

OLD_SECONDS: Final = 60
OLD_TRANSACTIONS: Final = 10_000  # for a holder without an age in seconds, such as a slot
DEAD_ROWS: Final = 50_000

Sample = tuple[Family, Labels, float]


class HolderKind(StrEnum):
    """The kinds of holders of the horizon."""

    SESSION = "session"
    SLOT = "replication_slot"
    PREPARED = "prepared_transaction"
    STANDBY = "standby"


class HorizonLevel(StrEnum):
    """ok: no old holder. watch: an old holder with few dead rows, or one of unknown age with many. bad: an old holder
    with many dead rows."""

    OK = "ok"
    WATCH = "watch"
    BAD = "bad"


class HorizonHolder(msgspec.Struct, frozen=True):
    """A holder of the horizon. Fields that the service's role can't see are null. `own`: a session of a service.

    `since` (ms since 1970) is when its transaction began, and `age_s` how long ago; null for slots and standbys. A
    transaction with a new snapshot for each statement holds the horizon for less than that. `xmin_age` counts the
    transactions since its oldest snapshot; the oldest holder comes first. `name` is of a slot or prepared transaction.
    `command` is the SQL that ends the holder, if there is one.
    """

    kind: HolderKind
    pid: int | None
    application: str | None
    user: str | None
    database: str | None
    client: str | None
    state: str | None
    wait: str | None
    query: str | None
    since: int | None
    age_s: float | None
    xmin: str
    xmin_age: int
    name: str | None
    own: bool
    advice: str = ""
    command: str | None = None

    @property
    def old(self) -> bool:
        """Whether it has held the horizon for longer than a transaction of a queue should."""
        return self.xmin_age >= OLD_TRANSACTIONS if self.age_s is None else self.age_s >= OLD_SECONDS

    @property
    def title(self) -> str:
        """The holder's name in sentences."""
        match self.kind:
            case HolderKind.SESSION:
                who = ", ".join(filter(None, (self.application, self.user)))
                return f"PID {self.pid} ({who})" if who else f"PID {self.pid}"
            case HolderKind.SLOT:
                return f"Replication slot {self.name}"
            case HolderKind.PREPARED:
                return f"Prepared transaction {self.name}"
            case HolderKind.STANDBY:
                return f"Standby {self.application or ''} (PID {self.pid})"
            case _:
                assert_never(self.kind)


class Table(msgspec.Struct, frozen=True):
    """A table of the service, with all its partitions. Rows are the server's estimates; times are ms since 1970.

    PostgreSQL does not count rows that can't be removed. But a vacuum sets the estimate of dead rows to those it had to
    leave, and later ones are added. If a vacuum ended after the oldest holder began, that holder keeps all current dead
    rows: `kept_rows`. Otherwise it is null.
    """

    name: str
    partitions: int
    live_rows: int
    dead_rows: int
    last_vacuum: int | None
    last_autovacuum: int | None
    kept_rows: int | None = None


class HorizonFacts(msgspec.Struct, frozen=True):
    """The result of the query; `at` in ms since 1970."""

    at: int
    role: str
    limited: bool
    holders: list[HorizonHolder]
    tables: list[Table]


class Position(msgspec.Struct, frozen=True):
    """The horizon: the oldest xmin, how many transactions ago it was, and its holder's age in seconds, if known."""

    xmin: str
    xmin_age: int
    age_s: float | None


class Horizon(msgspec.Struct, frozen=True):
    """The vacuum horizon. `position` is null if nothing holds it. `limited`: the role can't see everything; `hint` says
    what to do about that."""

    at: int
    healthy: bool
    level: HorizonLevel
    verdict: str
    position: Position | None
    holders: list[HorizonHolder]
    tables: list[Table]
    limited: bool
    hint: str | None


async def read_horizon(db: Pool | asyncpg.Connection[asyncpg.Record]) -> Horizon:
    """Read the horizon within SECONDS. Raises the errors of app.base.outages.UNREACHABLE."""
    answer: str = await db.fetchval(_HORIZON, MOST_HOLDERS, timeout=SECONDS)
    return judge(msgspec.json.decode(answer, type=HorizonFacts))


def judge(found: HorizonFacts) -> Horizon:
    """Add the level, a verdict and advice to the facts."""
    holders = [_with_advice(holder) for holder in found.holders]
    first = holders[0] if holders else None
    tables = [msgspec.structs.replace(table, kept_rows=_kept_rows(table, first)) for table in found.tables]
    level, verdict = _verdict(holders, tables)
    return Horizon(
        at=found.at,
        healthy=level is not HorizonLevel.BAD,
        level=level,
        verdict=verdict,
        position=None if first is None else Position(first.xmin, first.xmin_age, first.age_s),
        holders=holders,
        tables=tables,
        limited=found.limited,
        hint=_hint(found.role) if found.limited else None,
    )


def advise(holder: HorizonHolder) -> tuple[str, str | None]:
    """How to end this holder: advice, and a SQL command or None."""
    match holder.kind:
        case HolderKind.SESSION:
            return _advise_session(holder)
        case HolderKind.SLOT:
            if holder.pid is None:
                drop = f"SELECT pg_drop_replication_slot({_literal(holder.name)});"
                return "This slot has no reader. If its standby will not come back, drop it.", drop
            return "Its standby needs this. End the long query there, or set hot_standby_feedback = off there.", None
        case HolderKind.PREPARED:
            words = "Find out its outcome from its transaction manager. Run COMMIT PREPARED or ROLLBACK PREPARED here."
            return words, f"ROLLBACK PREPARED {_literal(holder.name)};"
        case HolderKind.STANDBY:
            return "End the long query on the standby, or set hot_standby_feedback = off there.", None
        case _:
            assert_never(holder.kind)


def _advise_session(holder: HorizonHolder) -> tuple[str, str | None]:
    if holder.own:
        return "This is a session of the service. Its timeouts will end it.", None
    end = f"SELECT pg_terminate_backend({holder.pid});"
    if holder.state is None:
        return "This role can't see its statement. Ask its user, or end the session.", end
    if holder.state.startswith("idle in transaction"):
        return "It is idle in an open transaction. Commit or roll back in its application, or end the session.", end
    return "Let its statement finish, or end the session.", end


def _verdict(holders: list[HorizonHolder], tables: list[Table]) -> tuple[HorizonLevel, str]:
    holder = next((holder for holder in holders if holder.old), None)
    dead = sum(table.dead_rows for table in tables)
    if holder is None:
        unknown = next((holder for holder in holders if holder.age_s is None), None)
        if unknown is None:
            return HorizonLevel.OK, "Nothing holds the horizon back."
        if dead <= DEAD_ROWS:
            return HorizonLevel.OK, "Nothing seems to hold the horizon back for long."
        words = f"{unknown.title} holds the horizon for an unknown time: {dead:,} dead rows so far."
        return HorizonLevel.WATCH, words
    age = f"{holder.xmin_age:,} transactions" if holder.age_s is None else duration(holder.age_s * 1000)
    if dead <= DEAD_ROWS:
        return HorizonLevel.WATCH, f"{holder.title} has held the horizon for {age}: {dead:,} dead rows so far."
    kept = sum(table.kept_rows or 0 for table in tables)
    if kept <= DEAD_ROWS:
        return (
            HorizonLevel.BAD,
            f"{holder.title} has held the horizon for {age}: up to {dead:,} dead rows can't be removed.",
        )
    return HorizonLevel.BAD, f"{holder.title} has held the horizon for {age}: {kept:,} dead rows can't be removed."


def _with_advice(holder: HorizonHolder) -> HorizonHolder:
    advice, command = advise(holder)
    return msgspec.structs.replace(holder, advice=advice, command=command)


def _kept_rows(table: Table, first: HorizonHolder | None) -> int | None:
    if first is None or table.dead_rows == 0:
        return 0
    vacuumed = max(table.last_vacuum or 0, table.last_autovacuum or 0)
    return table.dead_rows if first.since is not None and vacuumed > first.since else None


def _hint(role: str) -> str:
    name = role.replace('"', '""')
    return (
        "The role can't see states, ages and statements of others' sessions. To show them: "
        f'GRANT pg_read_all_stats TO "{name}";'
    )


def _literal(text: str | None) -> str:
    return "'" + (text or "").replace("'", "''") + "'"


class ServerFacts(msgspec.Struct, frozen=True):
    """The result of the query. `slots` and `standbys` have bytes of write-ahead log by name: retained by a slot, and
    not yet replayed. `wal_bytes` is None on a standby, `archive_fails` if archiving is off."""

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


async def read_samples(db: Pool | asyncpg.Connection[asyncpg.Record]) -> list[Sample]:
    """The server's metrics. The caller sets a timeout. Raises the errors of app.base.outages.UNREACHABLE."""
    answer: str = await db.fetchval(_HEALTH, MOST_READERS)
    facts = msgspec.json.decode(answer, type=ServerFacts)
    return [*_server_samples(facts), *_horizon_samples(await read_horizon(db))]


def _server_samples(facts: ServerFacts) -> Iterator[Sample]:
    yield catalogue.CONNECTIONS, (), facts.connections
    yield catalogue.CONNECTIONS_MOST, (), facts.most_connections
    yield catalogue.LOCK_WAITS, (), facts.lock_waits
    yield catalogue.DATABASE_BYTES, (), facts.bytes
    yield catalogue.ID_AGE, ("transaction",), facts.transaction_age
    yield catalogue.ID_AGE, ("multixact",), facts.multixact_age
    yield catalogue.TRANSACTIONS, ("committed",), facts.commits
    yield catalogue.TRANSACTIONS, ("rolled_back",), facts.rollbacks
    yield catalogue.DEADLOCKS, (), facts.deadlocks
    yield catalogue.BLOCKS, ("cache",), facts.blocks_cached
    yield catalogue.BLOCKS, ("system",), facts.blocks_read
    if facts.wal_bytes is not None:
        yield catalogue.WAL, (), facts.wal_bytes
    if facts.archive_fails is not None:
        yield catalogue.WAL_ARCHIVE_FAILS, (), int(facts.archive_fails)
    for name, kept in facts.slots.items():
        yield catalogue.SLOT_KEEPS, (name,), kept
    for name, behind in facts.standbys.items():
        yield catalogue.STANDBY_BEHIND, (name,), behind


def _horizon_samples(found: Horizon) -> Iterator[Sample]:
    for kind in HolderKind:
        held = [holder for holder in found.holders if holder.kind is kind]
        yield catalogue.HORIZON_TRANSACTIONS, (kind.value,), max((holder.xmin_age for holder in held), default=0)
        ages = [holder.age_s for holder in held if holder.age_s is not None]
        if ages or not held:
            yield catalogue.HORIZON_AGE, (kind.value,), max(ages, default=0)
    for table in found.tables:
        yield catalogue.LIVE_ROWS, (table.name,), table.live_rows
        yield catalogue.DEAD_ROWS, (table.name,), table.dead_rows
