"""Checks the database and the schema's version, and runs migrations.

A version is the start of a migration's file name: '0001', '0002', … Alembic stores the database's version in
holdfast.alembic_version. Alembic runs in a separate process, so a start without migrations never loads it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from app.base.db.connect import PASSING, Away, connect, place_of, reason_of
from app.base.db.programs import OLDEST_MAJOR
from app.errors import ConfigurationError

log = logging.getLogger(__name__)

ROOT = Path(__file__).parents[3]
KNOWN = tuple(sorted(path.name.split("_")[0] for path in ROOT.glob("migrations/versions/[0-9]*.py")))
WAIT_SECONDS = 15.0
AGAIN_SECONDS = 0.5
LOG_SECONDS = 5.0
CLOCK_SECONDS = 5.0

# Unique indexes guarantee, for example, one waiting job per key, one running job per group, one row per dedupe id. A
# restore from a dump that violates one reports an error, leaves the index out, and continues.
UNIQUE_INDEXES = frozenset(
    {
        "api_keys_digest_key",
        "api_keys_old_digest_key",
        "api_keys_pkey",
        "archived_days_pkey",
        "audit_pkey",
        "buckets_pkey",
        "dedupe_pkey",
        "defaults_pkey",
        "depth_looks_pkey",
        "depths_pkey",
        "freed_groups_pkey",
        "grants_pkey",
        "grants_user_id_action_topic_pattern_key",
        "groups_pkey",
        "idempotency_pkey",
        "inbox_unchecked_pkey",
        "jobs_group_out",
        "jobs_pending_key",
        "jobs_pkey",
        "lanes_pkey",
        "log_state_pkey",
        "operations_pkey",
        "records_pkey",
        "replays_pkey",
        "saved_views_pkey",
        "schedules_pkey",
        "sign_in_tries_pkey",
        "sqs_queues_pkey",
        "staged_pkey",
        "stages_pkey",
        "sweep_runs_pkey",
        "sweeps_pkey",
        "tallies_pkey",
        "token_secret_pkey",
        "topic_reads_pkey",
        "topic_schemas_pkey",
        "topic_stats_pkey",
        "topic_stats_progress_pkey",
        "topics_id_key",
        "topics_pkey",
        "user_events_pkey",
        "users_pkey",
        "users_username",
        "watches_pkey",
        "webhook_secrets_pkey",
        "writes_pkey",
    }
)
_UNDER_WAY = re.compile(r"_cc(new|old)\d*$")  # temporary indexes of REINDEX CONCURRENTLY, also of a failed one
_INDEXES = """
SELECT c.relname AS name, i.indisunique AS is_unique, i.indisvalid AND i.indisready AND i.indislive AS works
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = to_regnamespace('holdfast')
"""

FACTS = """
SELECT current_setting('server_version_num')::int AS number,
       current_setting('server_version') AS version,
       pg_is_in_recovery() AS recovering,
       current_setting('fsync') = 'on' AS fsync,
       current_setting('full_page_writes') = 'on' AS full_page_writes,
       current_setting('synchronous_commit') AS commits,
       current_setting('synchronous_standby_names') <> '' AS standbys,
       coalesce(current_setting('holdfast.may_lose_data', true), '') IN ('on', 'true', '1') AS may_lose_data,
       current_setting('server_encoding') AS encoding,
       extract(epoch FROM clock_timestamp())::float8 AS clock,
       current_setting('max_connections')::int AS most,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections,
       to_regclass('holdfast.alembic_version') IS NOT NULL AS migrated
"""


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Facts about the database.

    - most: max_connections. connections: how many of them are not reserved for superusers.
    - commits: the effective synchronous_commit of a session that asks for `on`.
    - standbys: whether commits should wait for standbys.
    - may_lose_data: whether the database's setting holdfast.may_lose_data is on.
    - ahead: least seconds by which its clock is ahead of this machine's.
    - revision: the schema's version; None before the first migration.
    - indexes: faults of indexes, if the schema has this code's version.
    """

    number: int
    version: str
    recovering: bool
    fsync: bool
    full_page_writes: bool
    commits: str
    standbys: bool
    may_lose_data: bool
    encoding: str
    ahead: float
    most: int
    connections: int
    revision: str | None
    indexes: Sequence[str]


async def current(url: str) -> str | None:
    """The schema's version; None before the first migration. Raises ConfigurationError if the database can't be
    asked."""
    return (await facts(url)).revision


async def check(url: str) -> bool:
    """Whether the schema must be migrated. Raises ConfigurationError if this code can't work with the database."""
    return judge(await facts(url))


async def wait_for_facts(url: str, seconds: float, away: Callable[[], Awaitable[None]] | None = None) -> DatabaseFacts:
    """Read the facts. Waits up to `seconds` for an unavailable database, and logs that every LOG_SECONDS. Calls `away`
    before the first wait. Raises as `facts`, at once if waiting can't help."""
    clock = asyncio.get_running_loop().time
    began, logged = clock(), -LOG_SECONDS
    found = None
    while found is None:
        try:
            found = await facts(url, patience=0.0)
        except Away as error:
            now = clock()
            left = began + seconds - now
            if left <= 0:
                waited = f" (waited {seconds:g} s: HOLDFAST_START_WAIT_SECONDS)" if seconds else ""
                raise ConfigurationError(f"{error}{waited}") from None
            if now - logged >= LOG_SECONDS:
                if logged < 0 and away is not None:
                    await away()
                logged = now
                log.warning("Waiting for PostgreSQL, at most %.0f s more. %s", left, error)
            await asyncio.sleep(min(AGAIN_SECONDS, left))
    return found


async def facts(url: str, *, patience: float = WAIT_SECONDS) -> DatabaseFacts:
    """Read the facts. Waits up to `patience` seconds for a database that is starting up.

    Raises ConfigurationError, or Away for a temporary reason. The message has host, port and reason, never the
    password."""
    connection = await connect(url, patience)
    try:
        before = time.time()
        row = await connection.fetchrow(FACTS)
        after = time.time()
        assert row is not None
        found = dict(row)
        clock = found.pop("clock")
        found["ahead"] = clock - min(max(clock, before), after)
        found |= {"revision": None, "indexes": ()}
        if found.pop("migrated"):
            found["revision"] = await connection.fetchval("SELECT max(version_num) FROM holdfast.alembic_version")
        if found["revision"] == KNOWN[-1]:
            found["indexes"] = await index_faults(connection)
        return DatabaseFacts(**found)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, *PASSING) as error:
        kind = Away if isinstance(error, PASSING) else ConfigurationError
        raise kind(f"The database at {place_of(url)} does not answer: {reason_of(error)}") from None
    finally:
        with suppress(Exception):
            await connection.close(timeout=2)
        connection.terminate()  # an unclosed connection can crash the interpreter at exit


def judge(found: DatabaseFacts) -> bool:
    """Whether the schema must be migrated. Raises ConfigurationError if this code can't work with the database."""
    if found.number < OLDEST_MAJOR * 10000:
        raise ConfigurationError(f"The database is PostgreSQL {found.version}. Use version {OLDEST_MAJOR} or newer")
    if found.recovering:
        raise ConfigurationError("The database is a standby in recovery. Set HOLDFAST_DATABASE_URL to the primary")
    if found.revision is not None and found.revision not in KNOWN:
        raise ConfigurationError(
            f"The database has schema {found.revision}, but this version of Holdfast knows only up to {KNOWN[-1]}. "
            "Start the version that made it. A database from before the first release can't be migrated: make a new one"
        )
    if found.encoding != "UTF8":
        raise ConfigurationError(
            f"The database's encoding is {found.encoding}. Create a database with ENCODING 'UTF8', which can store any "
            "text"
        )
    # A setting of the database, not of the service, so that it can't reach production in a copied environment.
    for danger in _dangers(found):
        if not found.may_lose_data:
            raise ConfigurationError(
                f"{danger}. Set it to on. For data that may be lost, run ALTER DATABASE … SET holdfast.may_lose_data "
                "= on"
            )
        log.warning("%s", danger)
    if found.indexes:
        raise ConfigurationError("; ".join(found.indexes))
    if abs(found.ahead) > CLOCK_SECONDS:
        log.warning(
            "PostgreSQL's clock is %.1f s %s this machine's. Leases and delays use the former, sign-in and logs the "
            "latter. Synchronize both",
            abs(found.ahead), "ahead of" if found.ahead > 0 else "behind",
        )  # fmt: skip
    return found.revision != KNOWN[-1]


def _dangers(found: DatabaseFacts) -> Iterator[str]:
    """Settings with which a crash can lose committed data."""
    for setting, on in (("fsync", found.fsync), ("full_page_writes", found.full_page_writes)):
        if not on:
            yield f"PostgreSQL runs with {setting}=off. A crash of the machine can lose or corrupt all jobs"
    if found.commits == "off" or (found.standbys and found.commits in {"local", "remote_write"}):
        yield (
            f"Sessions that ask for synchronous_commit=on get {found.commits}, perhaps because a pooler drops it. A "
            "crash can lose acknowledged calls"
        )


async def index_faults(connection: asyncpg.Connection[asyncpg.Record]) -> list[str]:
    """Faults of the current schema's indexes, each as a sentence that says what to do."""
    rows = await connection.fetch(_INDEXES)
    there = {row["name"] for row in rows if row["is_unique"]}
    broken = sorted(row["name"] for row in rows if not row["works"])
    for name in filter(_UNDER_WAY.search, broken):
        log.warning("The index holdfast.%s is INVALID. Drop it, unless a REINDEX is running", name)
    return [
        *(
            f"The unique index holdfast.{name} is missing. Create it as in docs/schema.sql"
            for name in sorted(UNIQUE_INDEXES - there)
        ),
        *(
            f"The index holdfast.{name} is INVALID. Run REINDEX INDEX CONCURRENTLY, or drop it if it is your own"
            for name in broken
            if not _UNDER_WAY.search(name)
        ),
    ]


async def upgrade(url: str, revision: str = "head") -> None:
    """Migrate, with one transaction per step. A concurrent migration waits. A cancellation takes effect between steps.

    Raises ConfigurationError with the last line of the error.
    """
    await _alembic(url, "upgrade", revision)


async def downgrade(url: str, revision: str) -> None:
    """Downgrade to a version, 'base' for none. Drops tables with their data. For development."""
    await _alembic(url, "downgrade", revision)


async def _alembic(url: str, *words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "alembic", "-c", str(ROOT / "alembic.ini"), *words,
        cwd=ROOT,
        env=os.environ | {"HOLDFAST_DATABASE_URL": url},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if process.returncode != 0:
        text = output.decode(errors="replace").strip()
        log.debug("alembic %s: %s", " ".join(words), text)
        raise ConfigurationError(f"The schema could not be migrated: {_last_fault(text)}")


def _last_fault(text: str) -> str:
    """The line of a traceback with the error. SQLAlchemy adds the statement and a link below it."""
    lines = [line for line in text.splitlines() if line and not line.startswith((" ", "[SQL", "(Background", "["))]
    faults = [line for line in lines if "Error" in line.split(":")[0] or line.startswith("FAILED")]
    return re.sub(r"^[\w.]+: (\([\w.]+\) )?(<class '[\w.]+'>: )?", "", (faults or lines or ["no reason given"])[-1])
