"""Stretches of a table, each read in pages. Each checks at its end whether rows may have been missed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from spark.errors import Mistake
from spark.source import ledger, logs
from spark.source.connection import Connection, ask
from spark.source.days import start_of
from spark.source.filters import Condition
from spark.source.pages import Row, Walk

BLOCKS_AT_ONCE: Final = 128

_FILENODE: Final = "SELECT pg_relation_filenode(to_regclass(%s))::bigint"


@dataclass(frozen=True, slots=True)
class Keys:
    """A range of a table's key. Rows may come and go while it is read."""

    between: tuple[Condition, ...]

    def pages(self, connection: Connection, walk: Walk) -> Iterator[list[Row]]:
        return walk.pages(connection, self.between)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of a day's partition, low <= block < high. Rows don't move, unless the day is rewritten."""

    day: str
    filenode: int
    low: int
    high: int

    def pages(self, connection: Connection, walk: Walk) -> Iterator[list[Row]]:
        """A page reads a few blocks only. Raises Mistake at the end if rows may have been missed."""
        time, midnight = walk.table.time, start_of(self.day)
        within = Condition(f"{time} >= %s AND {time} < %s", (midnight, midnight + timedelta(days=1)))
        for low in range(self.low, self.high, BLOCKS_AT_ONCE):
            high = min(self.high, low + BLOCKS_AT_ONCE)
            few = Condition("ctid > %s::tid AND ctid < %s::tid", (f"({low},0)", f"({high},0)"))
            yield from walk.pages(connection, (within, few))
        if ask(connection, _FILENODE, [f"holdfast.{self.day}"]) != [(self.filenode,)]:
            raise Mistake(f"{self.day} was dropped by retention, or rewritten, while it was read: read again")


@dataclass(frozen=True, slots=True)
class Times:
    """A range of the ledger's time, low <= at < high. `may_lack`: missing days are accepted."""

    low: datetime
    high: datetime
    may_lack: bool = False

    def pages(self, connection: Connection, walk: Walk) -> Iterator[list[Row]]:
        """Raises Mistake at the end, if rows may have been missed."""
        yield from ledger.rows(connection, walk, self.low, self.high)
        if not self.may_lack:
            ledger.check_kept(connection, self.low)


@dataclass(frozen=True, slots=True)
class Seqs:
    """A range of a log, low < seq <= high. `may_lack`: missing records are accepted."""

    topic: str
    low: int
    high: int
    may_lack: bool = False

    def pages(self, connection: Connection, walk: Walk) -> Iterator[list[Row]]:
        """Raises Mistake at the end, if rows may have been missed."""
        within = Condition("topic = %s AND seq > %s AND seq <= %s", (self.topic, self.low, self.high))
        yield from walk.pages(connection, (within,))
        if not self.may_lack and logs.state(connection, self.topic).lost > self.low:
            raise Mistake(f"log {self.topic}: records after seq {self.low} were removed while they were read")


Stretch = Keys | Blocks | Times | Seqs
