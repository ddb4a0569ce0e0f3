"""Database connections of Spark's Python workers: short-lived, synchronous, with their own timeouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from spark.errors import Mistake, reason

Connection = psycopg.Connection[tuple[Any, ...]]

CONNECT_SECONDS = 10
NO_ADDRESS = (
    "dsn is not a valid address: postgresql://user:password@host:port/database, "
    "with / @ : % in a password as %2F %40 %3A %25"
)
TIMEOUTS = {
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "10s",
}
# As in the service's own sessions (docs/adr/0002): a queue's statistics are always wrong, and these settings leave one
# plan for a page, along its key.
PLANNER = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
    "enable_hashjoin": "off",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}


def connect(dsn: str, *, read_only: bool, purpose: str) -> Connection:
    """A connection in autocommit mode, named `holdfast spark <purpose>` in pg_stat_activity.

    No statement is prepared. Settings are in the start-up packet, so a pooler must be in session mode. Raises Mistake
    if `dsn` is not valid, or if the database refuses or does not answer within CONNECT_SECONDS.
    """
    settings = {"timezone": "UTC", **TIMEOUTS, **PLANNER}
    if read_only:
        settings["default_transaction_read_only"] = "on"
    given = parse_dsn(dsn)
    own = " ".join(f"-c {name}={value}" for name, value in settings.items())
    conninfo = make_conninfo(
        **{
            "connect_timeout": str(CONNECT_SECONDS),
            **given,
            "application_name": f"holdfast spark {purpose}",
            "options": f"{given.get('options', '')} {own}".strip(),
        }
    )
    try:
        return psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise Mistake(f"no connection to the database: {reason(error)}") from None


def parse_dsn(dsn: str) -> dict[str, str]:
    """An address's parameters. Raises Mistake without details, because libpq's message may contain the password."""
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error:
        raise Mistake(NO_ADDRESS) from None
    # With an unescaped / or @, part of a password becomes port or host, which connection errors would show.
    ports, hosts = given.get("port", "").split(","), given.get("host", "").split(",")
    if not all(port.isdecimal() or not port for port in ports) or any("@" in host[1:] for host in hosts):
        raise Mistake(NO_ADDRESS)
    return given


def ask(connection: Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of a statement. Raises Mistake with the database's error message."""
    try:
        return connection.execute(sql, values, binary=True).fetchall()
    except psycopg.Error as error:
        raise Mistake(f"the database says: {reason(error)}") from error
