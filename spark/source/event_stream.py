"""The ledger as a stream: in rounds of transactions, each read in the order of time.

A row is visible once its transaction has committed, whatever its time or seq. A round has the rows of transactions
tx <= id < to. All of them had ended when the round began (`to` is a snapshot's xmin), so it is a fixed set. The next
round begins at `to`. Within a round, batches are cut by the rows' times.

The running transactions tell where a round's times begin: a transaction that was not running when the clock was read,
and had not ended by a later snapshot, wrote nothing before that time. A clock that is set back by more than SLACK may
hide rows from this.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from pyspark.sql.types import StructType

from spark.errors import Mistake
from spark.source import ledger
from spark.source.connection import Connection, ask
from spark.source.days import DAYS
from spark.source.filters import Condition
from spark.source.ledger import ENDLESS, LEDGER
from spark.source.plans import EPOCH, Part, instant_of, micros
from spark.source.reader import conditions
from spark.source.streams import Offset, Stream, StreamOptions
from spark.source.stretches import Times
from spark.windows import instant

SLACK: Final = timedelta(seconds=10)
IDLE: Final = timedelta(minutes=10)
SIGHTINGS: Final = 256
PATIENCE: Final = 5.0  # seconds

_RUNNING: Final = """
    SELECT now(), array_agg(transactionid::text::bigint) FROM pg_locks
    WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted"""
_HORIZON: Final = """
    SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint FROM pg_current_snapshot() s"""
# Days whose first row has a transaction number that this cluster has not reached.
_FOREIGN: Final = f"""
    SELECT count(*) FROM {DAYS} d
    CROSS JOIN LATERAL (
        SELECT tx FROM holdfast.lease_events e
        WHERE e.at >= d.midnight AND e.at < d.midnight + interval '1 day' LIMIT 1) first
    WHERE first.tx >= pg_snapshot_xmax(pg_current_snapshot())"""


@dataclass(frozen=True, slots=True)
class Sighting:
    """No transaction above `newest` wrote anything before `at`, unless it had ended by then."""

    at: datetime
    newest: int


@dataclass(frozen=True, slots=True)
class Horizon:
    """All transactions below `tx` have ended; later ones wrote nothing before `since`."""

    tx: int
    since: datetime


class EventStream(Stream):
    """A stream of the ledger. Its offsets have, with times in microseconds since 1970:

    tx, since  the round's start
    to, then   the next round's start; only within a round
    at         everything before it was read; only within a round
    xmin       only in the first offset: see `start`
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.sightings: list[Sighting] = []

    def first(self, connection: Connection) -> Offset:
        starting, day = self.options.starting, ledger.oldest(connection)
        if starting == "latest":
            return self.start(connection, day)
        if ask(connection, _FOREIGN, [LEDGER]) != [(0,)]:
            raise Mistake(
                "the ledger was restored from another cluster with higher transaction numbers, so the order of its "
                f"events is lost for option starting={starting}: use latest, and read older events as a frame"
            )
        [(now,)] = ask(connection, "SELECT now()")
        since = day or now
        if starting != "earliest":
            since = max(since, instant(starting, "option starting"))
        return {"tx": 0, "since": micros(since)}

    def start(self, connection: Connection, day: datetime | None) -> Offset:
        """An offset after every transaction that has an id: one in progress is entirely before it.

        `xmin` is the horizon that was seen in this database, as `tx` is in other offsets.
        """
        horizon = self.horizon(connection, EPOCH)
        [(_, ceiling)] = ask(connection, _HORIZON)  # ids up to it may be in progress, and ids of locks above it
        seen = self.sightings[-1]
        since = max(day or seen.at, seen.at - SLACK)
        return {"tx": max(ceiling, seen.newest + 1), "since": micros(since), "xmin": horizon.tx}

    def newest(self, connection: Connection) -> Horizon:
        """A horizon after everything committed now: waits up to PATIENCE for transactions in progress."""
        [(_, ceiling)] = ask(connection, _HORIZON)
        end = time.monotonic() + PATIENCE
        while (horizon := self.horizon(connection, EPOCH)).tx < ceiling and time.monotonic() < end:
            time.sleep(0.01)
        return horizon

    def next(self, connection: Connection, start: Offset, most: int | None) -> Offset:
        if "to" in start:
            to, then, low = start["to"], start["then"], instant_of(start["at"])
        else:
            low = instant_of(start["since"])
            horizon = self.target or self.horizon(connection, low)
            if horizon.tx < (start.get("xmin") or start["tx"]):  # an xmin never decreases
                raise Mistake(
                    "the database was set back to an earlier state than the checkpoint: start with a new checkpoint"
                )
            if horizon.tx <= start["tx"]:
                return start
            to, then = horizon.tx, max(start["since"], micros(horizon.since))
        if not self.options.may_lack:
            ledger.check_kept(connection, low)
        wanted = (*_transactions(start["tx"], to), *conditions(self.options.read))
        end, count, seen = ledger.reach(connection, wanted, low, most)
        if end < ENDLESS:
            return {"tx": start["tx"], "since": start["since"], "to": to, "then": then, "at": micros(end)}
        # An empty round is no batch, until it would take long to search or was idle for IDLE.
        is_idle = count == 0 and "to" not in start
        if is_idle and seen < ledger.LOOK and instant_of(then) - low < IDLE:
            return start
        return {"tx": to, "since": then}

    def parts(self, connection: Connection, start: Offset, end: Offset) -> list[Part]:
        low = instant_of(start["at"] if "at" in start else start["since"])
        high = instant_of(end["at"]) if "to" in end else ENDLESS
        wanted = _transactions(start["tx"], end["to"] if "to" in end else end["tx"])
        [(now,)] = ask(connection, "SELECT now()")
        tasks, until = self.options.read.partitions or 1, max(low, min(high, now))
        marks = [*(low + (until - low) * i / tasks for i in range(tasks)), high]
        return [Part([Times(a, b, self.options.may_lack)], wanted) for a, b in pairwise(marks) if a < b]

    def horizon(self, connection: Connection, floor: datetime) -> Horizon:
        """The current horizon; its time is `floor` if no later one is known."""
        [(at, running)] = ask(connection, _RUNNING)
        [(tx, ceiling)] = ask(connection, _HORIZON)  # after the running transactions were read: see above
        newest = max((full_id(short, ceiling) for short in running or ()), default=0)
        self.sightings.append(Sighting(at, newest))
        known = [i for i, one in enumerate(self.sightings) if one.newest < tx]
        if known:
            del self.sightings[: known[-1]]
            floor = max(floor, self.sightings[0].at - SLACK)
        if len(self.sightings) > SIGHTINGS:
            del self.sightings[1::2]
        return Horizon(tx, floor)


def full_id(short: int, ceiling: int) -> int:
    """A transaction's full id from the lower 32 bits in locks; no two ids are 2^31 apart."""
    above = (short - ceiling) % (1 << 32)
    return ceiling + (above if above < 1 << 31 else above - (1 << 32))


def _transactions(low: int, high: int) -> tuple[Condition, ...]:
    return (Condition("tx >= %s::xid8 AND tx < %s::xid8", (str(low), str(high))),)
