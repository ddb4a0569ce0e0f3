"""Connections of Spark's Python workers: short-lived, synchronous, with limits of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from spark.errors import Mistake, reason

Connection = psycopg.Connection[tuple[Any, ...]]

CONNECT_SECONDS = 10
NO_ADDRESS = (
    "dsn is no address: postgresql://user:password@host:port/database, with / @ : % in a password as %2F %40 %3A %25"
)
TIMEOUTS = {
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "10s",
}
# What the service's own sessions have (docs/adr/0002): a queue's statistics are always wrong, and with these there is
# one plan for a page, the one along its key.
PLANNER = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
    "enable_hashjoin": "off",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}


def connect(dsn: str, *, read_only: bool, purpose: str) -> Connection:
    """A connection in autocommit mode; shown in pg_stat_activity as `holdfast spark <purpose>`.

    No statement is prepared, but settings go with the start-up packet: it needs a pooler in session mode, or none.
    Raises Mistake if `dsn` is no address, or the database refuses or does not answer within CONNECT_SECONDS.
    """
    settings = {"timezone": "UTC", **TIMEOUTS, **PLANNER}
    if read_only:
        settings["default_transaction_read_only"] = "on"
    given = parsed(dsn)
    own = " ".join(f"-c {name}={value}" for name, value in settings.items())
    asked = make_conninfo(
        **{
            "connect_timeout": str(CONNECT_SECONDS),
            **given,
            "application_name": f"holdfast spark {purpose}",
            "options": f"{given.get('options', '')} {own}".strip(),
        }
    )
    try:
        return psycopg.connect(asked, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise Mistake(f"no connection to the database: {reason(error)}") from None


def parsed(dsn: str) -> dict[str, str]:
    """An address's parameters. Raises Mistake, which says nothing of `dsn`: what libpq says has the password in it."""
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error:
        raise Mistake(NO_ADDRESS) from None
    # A password with an unescaped / or @ goes on as the port or the host, which errors of the connection would show.
    ports, hosts = given.get("port", "").split(","), given.get("host", "").split(",")
    if not all(port.isdecimal() or not port for port in ports) or any("@" in host[1:] for host in hosts):
        raise Mistake(NO_ADDRESS)
    return given


def ask(connection: Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """A statement's rows, all of them. Raises Mistake with what the database says."""
    try:
        return connection.execute(sql, values, binary=True).fetchall()
    except psycopg.Error as error:
        raise Mistake(f"the database says: {reason(error)}") from error
