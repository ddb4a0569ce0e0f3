"""Identifies the database of a stream's positions: they mean nothing in another one."""

from __future__ import annotations

from typing import Any, Final

from spark.errors import Mistake
from spark.source.connection import Connection, ask

# The cluster, the database, and the timeline, which changes when a standby is promoted or a backup is restored.
_EPOCH: Final = """
    SELECT c.system_identifier || '/' || d.oid || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()"""


def current(connection: Connection) -> str:
    """The connected database's epoch. Raises Mistake on a standby, which has no position of its own."""
    [(in_recovery,)] = ask(connection, "SELECT pg_is_in_recovery()")
    if in_recovery:
        raise Mistake("a stream reads from the primary: this is a standby")
    [(epoch,)] = ask(connection, _EPOCH)
    return str(epoch)


def check_epoch(offset: dict[str, Any], epoch: str, accepted: str | None) -> None:
    """Raises Mistake if a checkpoint has another epoch than the database, unless the new one is `accepted`."""
    if epoch not in (offset["epoch"], accepted):
        raise Mistake(
            f"the checkpoint is of another database, or of this one before a restore or a failover: its epoch is "
            f"{offset['epoch']}, the database's {epoch}. Start with a new checkpoint, or set option "
            f"epoch={epoch} if you know that nothing was lost"
        )
