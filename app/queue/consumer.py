"""Taking jobs out: claim, and what the holder of a lease may do with it. docs/semantics.md, sections 1 to 4.

Each verb is one statement, and checks the lease in it. ack, nack and extend lock before they change: what somebody
changed between the two comes back as picked and not done, and the verb runs again for it, or the verb of a good
lease that met a heartbeat would be lost.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from asyncpg.pgproto.pgproto import UUID

from app.db import sql
from app.queue.model import Budget, Connection, Held, Job, Lane, LeaseId, Reach, Share, Topic

_CLAIM = sql.load(__package__, "claim")
_ACK = sql.load(__package__, "ack")
_ACK_ARCHIVED = sql.load(__package__, "ack_archived")
_NACK = sql.load(__package__, "nack")
_NACK_KEYED = sql.load(__package__, "nack_keyed")
_EXTEND = sql.load(__package__, "extend")
_HELD = sql.load(__package__, "held")
_LANES = sql.load(__package__, "lanes")
_LOCK_TENANTS = sql.load(__package__, "lock_tenants")
_IN_FLIGHT = sql.load(__package__, "in_flight")

MAX_RUNS: Final = 5  # two were the most ever needed under stress


@dataclass(frozen=True, slots=True)
class Slots:
    """Seats for the jobs of one claim: seat i belongs to caller `callers[i]` (from 0) and takes the i-th job."""

    callers: list[int]
    nodes: list[str]
    leases_ms: list[int]


@dataclass(slots=True)
class Seen:
    """The last job that a claim met in each part of a lane, and the first there that it met and could not lease; and
    how many it met."""

    ready: int | None = None
    due: int | None = None
    ready_lost: int | None = None
    due_lost: int | None = None
    met: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """`jobs[i]` are those of caller i, in claim order; whether any was met that has no delivery left, or whose time to
    live has passed. `seen` is by the lane's place; `met` counts all; `at` is now() in µs. `waits_us`, in no order: for
    how long jobs could have been claimed; fresh dead letters are left out."""

    jobs: list[list[Job]]
    exhausted: bool
    expired: bool
    seen: dict[int, Seen]
    met: int
    at: int
    waits_us: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(map(len, self.jobs))


async def lanes(db: Connection, topic: Topic) -> list[Lane]:
    """The lanes that a topic has, in claim order."""
    return [Lane(row["tenant"], row["priority"]) for row in await db.fetch(_LANES, topic.name)]


async def claim(
    db: Connection,
    topic: Topic,
    budget: Budget,
    reaches: Sequence[Reach],
    slots: Slots,
    *,
    shares: Sequence[Share] | None = None,
    whole: bool = False,
) -> Claimed:
    """Lease up to len(slots.callers) jobs, lanes in the order given, each lane at most once; `whole`: with their
    `rest`. `shares`: how far the lanes, as many of them as it says one after the other, are gone through; None: as far
    as there are slots."""
    wanted = len(slots.callers)
    shares = [Share(len(reaches), wanted)] if shares is None else shares
    ends = list(itertools.accumulate(share.lanes for share in shares))
    noise = os.urandom(16 * wanted)
    leases = [UUID(noise[i : i + 16]) for i in range(0, 16 * wanted, 16)]
    rows = await db.fetch(
        _CLAIM,
        topic.name,
        wanted,
        [reach.lane.tenant for reach in reaches],
        [reach.lane.priority for reach in reaches],
        [reach.after for reach in reaches],
        [reach.due for reach in reaches],
        leases,
        [caller + 1 for caller in slots.callers],
        slots.nodes,
        slots.leases_ms,
        budget.ends,
        budget.max_deliveries,
        whole,
        [end - share.lanes + 1 for end, share in zip(ends, shares, strict=True)],
        ends,
        [share.most for share in shares],
    )
    jobs: list[list[Job]] = [[] for _ in slots.nodes]
    exhausted = expired = False
    seen: dict[int, Seen] = {}
    at: int = rows.pop()["place"]
    waits: list[int] = []
    for kind, lane, due, place, slot, seq, *shown in rows:  # RETURNING promises no order; each row says whose it is
        part = seen.get(lane - 1)
        if part is None:
            part = seen[lane - 1] = Seen()
        _see(part, due=due, place=place, lost=kind == "lost")
        if kind == "leased":
            start = 16 * (slot - 1)
            shown.append(reaches[lane - 1].lane.tenant)
            job = Job(seq, noise[start : start + 16].hex(), *shown)
            jobs[slots.callers[slot - 1]].append(job)
            if due:
                waits.append(at - place)
            elif job.original_topic is None:  # else it is older than its place in this queue
                waits.append(at - job.created_ms * 1000)
        elif kind == "exhausted":
            exhausted = True
        elif kind == "expired":
            expired = True
    return Claimed(jobs, exhausted, expired, seen, len(rows), at, waits)


async def room_of(db: Connection, topic: Topic, limits: Mapping[str, int]) -> dict[str, int]:
    """How many more jobs of these tenants may be in flight. `db` is a connection with a transaction of its own: whoever
    else asks waits for its end."""
    await db.execute(_LOCK_TENANTS, topic.id)
    rows = await db.fetch(_IN_FLIGHT, topic.name, list(limits), list(limits.values()))
    return {row["tenant"]: limits[row["tenant"]] - row["held"] for row in rows}


def _see(seen: Seen, *, due: bool, place: int, lost: bool) -> None:
    seen.met += 1
    if due:
        if seen.due is None or place > seen.due:
            seen.due = place
        if lost and (seen.due_lost is None or place < seen.due_lost):
            seen.due_lost = place
    else:
        if seen.ready is None or place > seen.ready:
            seen.ready = place
        if lost and (seen.ready_lost is None or place < seen.ready_lost):
            seen.ready_lost = place


@dataclass(slots=True)
class Ended:
    """Of jobs that were completed, in no order: the deliveries they took, and, where it is known, the time since the
    last claim in ms, beside whose they were."""

    deliveries: list[int] = field(default_factory=list)
    ages_ms: list[int] = field(default_factory=list)
    tenants: list[str] = field(default_factory=list)


async def ack(
    db: Connection, topic: Topic, held: Sequence[Held], ended: Ended | None = None, *, archived: bool = False
) -> set[int]:
    """Complete jobs: the places in `held` that were its holder's. `held` must ascend by seq. Adds to `ended`.

    With `archived`, each goes into the archive in the same statement.
    """
    statement = _ACK_ARCHIVED if archived else _ACK
    done: set[int] = set()
    for _ in range(MAX_RUNS):
        places = _open(held, done)
        row = await _one(db, statement, topic.name, *_columns(held, places))
        done.update(places[i - 1] for i in row["done"])
        if ended is not None:
            ended.deliveries += row["deliveries"]
            for age, tenant in zip(row["ages"], row["tenants"], strict=True):
                if age is not None:
                    ended.ages_ms.append(age)
                    ended.tenants.append(tenant)
        if len(row["done"]) == len(row["picked"]):
            break
    return done


@dataclass(frozen=True, slots=True)
class Return:
    """How one job goes back: after `delay_ms` (0: at once), with the holder's error, and whether the delivery that
    ends here counts."""

    delay_ms: int = 0
    error: str | None = None
    refund: bool = False


@dataclass(frozen=True, slots=True)
class Returned:
    """Places in `held`: returned to the queue; still held, since the job has a key; and out of deliveries, with the
    lease that still holds the job."""

    done: set[int]
    keyed: set[int]
    spent: dict[int, LeaseId]


async def nack(
    db: Connection, topic: Topic, budget: Budget, held: Sequence[Held], returns: Sequence[Return]
) -> Returned:
    """Return jobs to the queue. `held` must ascend by seq; returns[i] belongs to held[i].

    What is `spent` has had its last delivery: the caller takes it out (`retire`). What is `keyed` takes `nack_keyed`.
    """
    done: set[int] = set()
    keyed: set[int] = set()
    spent: dict[int, LeaseId] = {}
    for _ in range(MAX_RUNS):
        places = _open(held, done | keyed | spent.keys())
        row = await _one(
            db,
            _NACK,
            topic.name,
            *_columns(held, places),
            [returns[i].delay_ms for i in places],
            [returns[i].error for i in places],
            [returns[i].refund for i in places],
            budget.ends,
            budget.max_deliveries,
        )
        done.update(places[i - 1] for i in row["done"])
        spent.update((places[i - 1], lease) for i, lease in zip(row["spent"], row["leases"], strict=True))
        keyed.update(places[i - 1] for i in row["keyed"])
        if len(row["done"]) == len(row["picked"]):
            break
    return Returned(done, keyed, spent)


async def nack_keyed(
    db: Connection, topic: Topic, held: Sequence[Held], returns: Sequence[Return]
) -> tuple[set[int], set[int]]:
    """Return jobs that have keys: the places in `held` (ascending by seq) that were their holders'; and of those, the
    ones that ended, since a newer job of their key waits.

    Waits for whoever writes the same keys. Raises SerializationError where it is worth a retry.
    """
    row = await _one(
        db,
        _NACK_KEYED,
        topic.name,
        *_columns(held, _open(held, set())),
        [one.delay_ms for one in returns],
        [one.error for one in returns],
        [one.refund for one in returns],
    )
    return {i - 1 for i in row["done"]}, {i - 1 for i in row["superseded"]}


async def extend(db: Connection, topic: Topic, held: Sequence[Held], leases_ms: Sequence[int]) -> dict[int, int]:
    """Set deadlines to now + leases_ms[i]: place in `held` → new deadline in ms since 1970. Ascending by seq."""
    done: dict[int, int] = {}
    for _ in range(MAX_RUNS):
        places = _open(held, done)
        row = await _one(db, _EXTEND, topic.name, *_columns(held, places), [leases_ms[i] for i in places])
        done.update((places[i - 1], deadline) for i, deadline in zip(row["done"], row["deadlines"], strict=True))
        if len(row["done"]) == len(row["picked"]):
            break
    return done


async def still_held(db: Connection, topic: Topic, leases: Sequence[tuple[int, LeaseId]]) -> set[int]:
    """Of (seq, lease id) pairs: the places whose lease is good."""
    places: list[int] = await db.fetchval(_HELD, topic.name, [seq for seq, _ in leases], [lease for _, lease in leases])
    return {place - 1 for place in places}


def _open(held: Sequence[Held], settled: set[int] | dict[int, int]) -> list[int]:
    """The places that a further run has to look at."""
    if settled:
        return [i for i in range(len(held)) if i not in settled]
    # Rows are locked in this order by every verb; out of order, two batches deadlock.
    assert all(a.seq <= b.seq for a, b in itertools.pairwise(held)), "held must ascend by seq"
    return list(range(len(held)))


def _columns(held: Sequence[Held], places: list[int]) -> tuple[list[int], list[LeaseId | None], list[str | None]]:
    return [held[i].seq for i in places], [held[i].lease for i in places], [held[i].node for i in places]


async def _one(db: Connection, query: str, *args: Any) -> Any:
    row = await db.fetchrow(query, *args)
    assert row is not None, "the statement answers one row always"
    return row
