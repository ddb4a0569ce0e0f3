"""The ledger as a stream: in rounds of transactions, each of which is read along its time.

A row is visible once its transaction has committed, whatever its time or seq. A round has the rows of transactions
tx <= id < to, all of which had ended when it began (`to` is a snapshot's xmin), so that it is a fixed set; the next one
begins at `to`. Within a round batches are cut by the rows' times.

Where a round's times begin is known by who was running: a transaction that was not when a clock was read, and had not
ended later, has written nothing before. Clocks that are set back by more than SLACK may hide rows from that.
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
from spark.source.streams import Asked, Offset, Stream
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
# Days that begin with a row of a transaction that is yet to come here.
_FOREIGN: Final = f"""
    SELECT count(*) FROM {DAYS} d
    CROSS JOIN LATERAL (
        SELECT tx FROM holdfast.lease_events e
        WHERE e.at >= d.midnight AND e.at < d.midnight + interval '1 day' LIMIT 1) first
    WHERE first.tx >= pg_snapshot_xmax(pg_current_snapshot())"""


@dataclass(frozen=True, slots=True)
class Sighting:
    """Of transactions above `newest`, none had written anything before `at`, unless it had ended by then."""

    at: datetime
    newest: int


@dataclass(frozen=True, slots=True)
class Horizon:
    """All transactions below `tx` have ended; those from it on have written nothing before `since`."""

    tx: int
    since: datetime


class EventStream(Stream):
    """Offsets, with times in microseconds since 1970: `tx` and `since` of the round; within it also `to` and `then`,
    where the next one begins, and `at`, before which all was read. The first one may have `xmin`: see `start`."""

    def __init__(self, asked: Asked, schema: StructType) -> None:
        super().__init__(asked, schema)
        self.sightings: list[Sighting] = []

    def first(self, connection: Connection) -> Offset:
        starting, day = self.asked.starting, ledger.oldest(connection)
        if starting == "latest":
            return self.start(connection, day)
        if ask(connection, _FOREIGN, [LEDGER]) != [(0,)]:
            raise Mistake(
                "the ledger was restored from another cluster, whose transactions were further than this one's are: "
                f"option starting={starting} can't be told in order; use latest, and read what is older as a frame"
            )
        [(now,)] = ask(connection, "SELECT now()")
        since = day or now
        if starting != "earliest":
            since = max(since, instant(starting, "option starting"))
        return {"tx": 0, "since": micros(since)}

    def start(self, connection: Connection, day: datetime | None) -> Offset:
        """Behind every transaction that has an id: one that is under way is wholly before it, not in part. Its `xmin`
        is what `tx` is of other offsets: it was seen in this database, and has not fallen."""
        horizon = self.horizon(connection, EPOCH)
        [(_, ceiling)] = ask(connection, _HORIZON)  # ids up to it may be under way, and those of locks above it
        seen = self.sightings[-1]
        since = max(day or seen.at, seen.at - SLACK)
        return {"tx": max(ceiling, seen.newest + 1), "since": micros(since), "xmin": horizon.tx}

    def newest(self, connection: Connection) -> Horizon:
        """Past all that is committed now: that waits for whoever was under way then, for PATIENCE at most."""
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
            if horizon.tx < (start.get("xmin") or start["tx"]):  # an xmin never falls
                raise Mistake("the database was set back to an earlier state than the checkpoint: start with a new one")
            if horizon.tx <= start["tx"]:
                return start
            to, then = horizon.tx, max(start["since"], micros(horizon.since))
        if not self.asked.may_lack:
            ledger.must_be_kept(connection, low)
        wanted = (*_transactions(start["tx"], to), *conditions(self.asked.read))
        end, count, seen = ledger.reach(connection, wanted, low, most)
        if end < ENDLESS:
            return {"tx": start["tx"], "since": start["since"], "to": to, "then": then, "at": micros(end)}
        # Rounds without a row are not worth a batch each, nor a look at ever more of them.
        is_idle = count == 0 and "to" not in start
        if is_idle and seen < ledger.LOOK and instant_of(then) - low < IDLE:
            return start
        return {"tx": to, "since": then}

    def parts(self, connection: Connection, start: Offset, end: Offset) -> list[Part]:
        low = instant_of(start["at"] if "at" in start else start["since"])
        high = instant_of(end["at"]) if "to" in end else ENDLESS
        wanted = _transactions(start["tx"], end["to"] if "to" in end else end["tx"])
        [(now,)] = ask(connection, "SELECT now()")
        tasks, until = self.asked.read.partitions or 1, max(low, min(high, now))
        marks = [*(low + (until - low) * i / tasks for i in range(tasks)), high]
        return [Part([Times(a, b, self.asked.may_lack)], wanted) for a, b in pairwise(marks) if a < b]

    def horizon(self, connection: Connection, floor: datetime) -> Horizon:
        """The present one; no earlier than `floor`, if nothing better is known."""
        [(at, running)] = ask(connection, _RUNNING)
        [(tx, ceiling)] = ask(connection, _HORIZON)  # later than who was running: see above
        newest = max((whole(short, ceiling) for short in running or ()), default=0)
        self.sightings.append(Sighting(at, newest))
        known = [i for i, one in enumerate(self.sightings) if one.newest < tx]
        if known:
            del self.sightings[: known[-1]]
            floor = max(floor, self.sightings[0].at - SLACK)
        if len(self.sightings) > SIGHTINGS:
            del self.sightings[1::2]
        return Horizon(tx, floor)


def whole(short: int, ceiling: int) -> int:
    """A transaction's whole id by the lower 32 bits, which locks have; none is 2^31 away from another."""
    above = (short - ceiling) % (1 << 32)
    return ceiling + (above if above < 1 << 31 else above - (1 << 32))


def _transactions(low: int, high: int) -> tuple[Condition, ...]:
    return (Condition("tx >= %s::xid8 AND tx < %s::xid8", (str(low), str(high))),)
