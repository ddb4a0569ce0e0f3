"""Interleavings that are forced: a rival goes on only once the database says that it waits."""

from __future__ import annotations

from dataclasses import dataclass

from tests.queue.calls import Session, until


@dataclass(frozen=True, slots=True)
class Rivals:
    """Sessions: the one that acts first, the one that has to wait or to go without, and one that looks."""

    one: Session
    other: Session
    observer: Session

    async def meet(self) -> None:
        """Wait until somebody waits for a lock that `one` has."""
        pid = self.one.get_server_pid()

        async def waits() -> bool:
            found = await self.observer.fetchval(
                "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))", pid
            )
            return bool(found)

        await until(waits, "the rival waits")
