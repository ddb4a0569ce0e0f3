"""How PostgreSQL stands: connections, space, the log and its readers, and who keeps dead rows from being removed.

A row that is deleted or changed stays in the table until no snapshot can see it any more. The oldest transaction that
is open, or the oldest xmin that a slot, a prepared transaction or a standby asks for, is the horizon: rows that died
behind it can't be removed, and a queue's rows die by the thousand each second. docs/operations/postgres.md.

What takes more than two statements on statistics views is postgres_exporter's: docs/metrics.md.
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

MOST_READERS: Final = 20  # slots, and standbys
MOST_HOLDERS: Final = 100
SECONDS: Final = 3.0

OLD_SECONDS: Final = 60
OLD_TRANSACTIONS: Final = 10_000  # of a holder whose age in seconds nobody knows, such as a slot
DEAD_ROWS: Final = 50_000

Sample = tuple[Family, Labels, float]


class HolderKind(StrEnum):
    """The kinds of things that hold back the horizon."""

    SESSION = "session"
    SLOT = "replication_slot"
    PREPARED = "prepared_transaction"
    STANDBY = "standby"


class HorizonLevel(StrEnum):
    """ok: nothing old; watch: old with few dead rows, or of unknown age with many; bad: old, with many dead rows."""

    OK = "ok"
    WATCH = "watch"
    BAD = "bad"


class HorizonHolder(msgspec.Struct, frozen=True):
    """Something that holds the horizon. What the service's role may not see is null; `own` is a session of a service.

    `since` (ms since 1970) is when its transaction began, and `age_s` how long ago: a slot and a standby have none.
    A transaction that takes a new snapshot for each statement holds less than that. `xmin_age` counts the transactions
    that began since its oldest snapshot, and tells the order. `name` is a slot's or a prepared transaction's. `command`
    is the SQL that ends it, where there is one.
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
        """Whether it holds the horizon for longer than any transaction of a queue should."""
        return self.xmin_age >= OLD_TRANSACTIONS if self.age_s is None else self.age_s >= OLD_SECONDS

    @property
    def title(self) -> str:
        """How a sentence names it."""
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
    """A table of the service, its partitions taken together. Rows are the server's estimates; times ms since 1970.

    PostgreSQL keeps no figure of rows that can't be removed. But a vacuum sets the estimate of dead rows to those it
    had to leave, and what dies later is added. So where a vacuum ended after the oldest holder began, all that are
    dead now are kept by it: `kept_rows`. Before, nobody can tell, and it is null.
    """

    name: str
    partitions: int
    live_rows: int
    dead_rows: int
    last_vacuum: int | None
    last_autovacuum: int | None
    kept_rows: int | None = None


class HorizonFacts(msgspec.Struct, frozen=True):
    """The facts of one read; `at` in ms since 1970."""

    at: int
    role: str
    limited: bool
    holders: list[HorizonHolder]
    tables: list[Table]


class Position(msgspec.Struct, frozen=True):
    """Where the horizon is: the oldest xmin, how many transactions behind, and its holder's age where one is known."""

    xmin: str
    xmin_age: int
    age_s: float | None


class Horizon(msgspec.Struct, frozen=True):
    """The whole answer. `position` is null where nothing holds the horizon; `hint` says what `limited` hides."""

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
    """Ask the server, for SECONDS at most. Raises what app.base.outages.UNREACHABLE lists."""
    answer: str = await db.fetchval(_HORIZON, MOST_HOLDERS, timeout=SECONDS)
    return judge(msgspec.json.decode(answer, type=HorizonFacts))


def judge(found: HorizonFacts) -> Horizon:
    """The level, the verdict in words, and the holders with advice, from the facts of one read."""
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
    """How to end this holder: advice in words, and a command in SQL."""
    match holder.kind:
        case HolderKind.SESSION:
            return _advise_session(holder)
        case HolderKind.SLOT:
            if holder.pid is None:
                drop = f"SELECT pg_drop_replication_slot({_literal(holder.name)});"
                return "Nobody reads from this slot. If its standby will not come back, drop it.", drop
            return "Its standby asks for this. End the long query there, or set hot_standby_feedback = off there.", None
        case HolderKind.PREPARED:
            words = "Ask its transaction manager how it ended: COMMIT PREPARED or ROLLBACK PREPARED, in this database."
            return words, f"ROLLBACK PREPARED {_literal(holder.name)};"
        case HolderKind.STANDBY:
            return "End the long query on the standby, or set hot_standby_feedback = off there.", None
        case _:
            assert_never(holder.kind)


def _advise_session(holder: HorizonHolder) -> tuple[str, str | None]:
    if holder.own:
        return "A session of the service: its own timeouts end it.", None
    end = f"SELECT pg_terminate_backend({holder.pid});"
    if holder.state is None:
        return "What it does is hidden from this role. Ask its user, or end the session.", end
    if holder.state.startswith("idle in transaction"):
        return "It is idle in an open transaction. Commit or roll back where it began, or end the session.", end
    return "Let its statement finish, or end the session.", end


def _verdict(holders: list[HorizonHolder], tables: list[Table]) -> tuple[HorizonLevel, str]:
    holder = next((holder for holder in holders if holder.old), None)
    dead = sum(table.dead_rows for table in tables)
    if holder is None:
        unknown = next((holder for holder in holders if holder.age_s is None), None)
        if unknown is None:
            return HorizonLevel.OK, "Nothing holds the horizon back."
        if dead <= DEAD_ROWS:
            return HorizonLevel.OK, "Nothing holds the horizon back for long, as far as can be seen."
        words = f"{unknown.title} holds the horizon, for how long is not known: {dead:,} dead rows so far."
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
        f'The role may not see states, ages and statements of others. GRANT pg_read_all_stats TO "{name}"; shows them.'
    )


def _literal(text: str | None) -> str:
    return "'" + (text or "").replace("'", "''") + "'"


class ServerFacts(msgspec.Struct, frozen=True):
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


async def read_samples(db: Pool | asyncpg.Connection[asyncpg.Record]) -> list[Sample]:
    """The metrics of the server; who asks says for how long. Raises what app.base.outages.UNREACHABLE lists."""
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
