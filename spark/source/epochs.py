"""Which database it is: positions in one mean nothing in another, and must not be taken for some of its own."""

from __future__ import annotations

from typing import Any, Final

from spark.errors import Mistake
from spark.source.connection import Connection, ask

# The cluster, the database in it, and the timeline: that changes when a standby is promoted or a backup restored.
_EPOCH: Final = """
    SELECT c.system_identifier || '/' || d.oid || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()"""


def current(connection: Connection) -> str:
    """Raises Mistake on a standby, which has no position of its own."""
    [(in_recovery,)] = ask(connection, "SELECT pg_is_in_recovery()")
    if in_recovery:
        raise Mistake("a stream reads from the primary: this is a standby")
    [(epoch,)] = ask(connection, _EPOCH)
    return str(epoch)


def must_be_of(offset: dict[str, Any], epoch: str, accepted: str | None) -> None:
    """Raises Mistake if a checkpoint's offset is of another epoch than the database, unless that one was accepted."""
    if epoch not in (offset["epoch"], accepted):
        raise Mistake(
            f"the checkpoint is of another database, or of this one before a restore or a failover: its epoch is "
            f"{offset['epoch']}, the database's {epoch}. Start with a new checkpoint; or go on with option "
            f"epoch={epoch}, if you know that nothing was lost"
        )
