"""Errors of an unreachable or overloaded database."""

from __future__ import annotations

import asyncio
from typing import Final

import asyncpg

from app.errors import Unavailable

UNREACHABLE: Final = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a server killed in mid-answer can surface as a protocol state error
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.QueryCanceledError,
    asyncpg.LockNotAvailableError,
    asyncpg.DiskFullError,
    asyncpg.OutOfMemoryError,
    asyncpg.ReadOnlySQLTransactionError,
)
# Subsets of UNREACHABLE for a database that can be reached:
TOO_SLOW: Final = (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError)
_OUT_OF_ORDER: Final[dict[type[BaseException], str]] = {
    asyncpg.DiskFullError: "The database's disk is full.",
    asyncpg.OutOfMemoryError: "The database is out of memory.",
    asyncpg.TooManyConnectionsError: "The database has no connection left.",
    asyncpg.ReadOnlySQLTransactionError: "The database is read-only right now.",
}
LOST_RACE: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


def as_unavailable(error: BaseException) -> Unavailable | None:
    """The error to return for an unreachable or overloaded database; None for other exceptions."""
    if isinstance(error, TOO_SLOW):
        return Unavailable("The database took too long. Try again.")
    for kind, why in _OUT_OF_ORDER.items():
        if isinstance(error, kind):
            return Unavailable(f"{why} Try again.")
    if isinstance(error, UNREACHABLE):
        return Unavailable("The database can't be reached right now. Try again.")
    return None
