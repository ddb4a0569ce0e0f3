"""The statements of a lease: claim, ack, nack and extend. docs/semantics.md, sections 1 to 4.

Each verb is one statement that checks the lease itself. ack, nack and extend lock a job before they change it. If
another statement changed the job in between, it comes back as picked but not done, and the verb runs again for it.
Otherwise an ack that ran at the same time as a heartbeat would be lost, though its lease is valid.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from asyncpg.pgproto.pgproto import UUID

from app.base.db import sql
from app.kernel.claim.ordering import sort_keys
from app.kernel.counts import inspector
from app.kernel.model import Budget, Connection, HeldJob, Job, LeaseId, Reach, Seq, Share, Topic
from app.kernel.settle.results import NOTHING, AckCounts, Keep, Progress
from app.kernel.topics.backoff import SUSPECTED_FROM, Backoff

_CLAIM = sql.load(__package__, "claim")
_CLAIM_TAGGED = sql.load(__package__, "claim_tagged")
_ACK = sql.load(__package__, "ack")
_ACK_AND_RECORD = sql.load(__package__, "ack_and_record")
_NACK = sql.load(__package__, "nack")
_NACK_KEYED = sql.load(__package__, "nack_keyed")
_EXTEND = sql.load(__package__, "extend")
_SQL: Final = sql.load_all(__package__)
_HELD = _SQL["held"]
_LEASES = _SQL["leases"]

MAX_BYTES: Final = 64 * 1024 * 1024  # payload bytes of one claim; the last job may exceed it
MAX_RUNS: Final = 5  # under stress, two runs were always enough


class Slots(msgspec.Struct, frozen=True):
    """The slots of one claim: slot i belongs to caller `callers[i]` (from 0) and takes the i-th job."""

    callers: list[int]
    nodes: list[str]
    leases_ms: list[int]


class LaneEnd(msgspec.Struct):
    """How far a claim came in one lane. For the ready part and the due part: the last job it met, and the first job it
    met and could not lease. `met` counts the jobs it met."""

    ready: int | None = None
    due: int | None = None
    ready_lost: int | None = None
    due_lost: int | None = None
    met: int = 0


class ClaimResult(msgspec.Struct, frozen=True):
    jobs: list[list[Job]]  # by caller, in claim order
    exhausted: bool  # whether it met a job with no deliveries left
    expired: bool  # whether it met a job whose time to live has passed
    seen: dict[int, LaneEnd]  # by the lane's place
    met: int  # jobs in all
    at: int  # now() in µs
    cut: bool = False  # whether it left jobs because of the limit on bytes
    waits_us: list[int] = msgspec.field(default_factory=list)  # how long each job was claimable, in no order
    crashes: int = 0  # jobs whose last lease had passed its deadline
    suspects: int = 0  # of these, jobs for which it was the second time
    taken: bool = False  # whether it met jobs that another transaction had locked

    @property
    def count(self) -> int:
        return sum(map(len, self.jobs))


async def claim(
    db: Connection,
    topic: Topic,
    budget: Budget,
    reaches: Sequence[Reach],
    slots: Slots,
    *,
    shares: Sequence[Share] | None = None,
    whole: bool = False,
    by_time: bool = False,
    most_bytes: int = MAX_BYTES,
    tags: Sequence[str] | None = None,
) -> ClaimResult:
    """Lease up to len(slots.callers) jobs from the lanes in the given order, each lane at most once.

    shares: groups of consecutive lanes, with the most jobs of each; None: one group without a limit.
    whole: whether jobs have their `rest`.
    by_time: sort the jobs of a lane by the time since when they could be claimed; otherwise due jobs come first. Then
        `reaches` must limit the due jobs (see ordering.limit_due).
    most_bytes: stop after so many bytes of payload. The first job is always leased, whatever its size.
    tags: only jobs with at least one of these.
    """
    wanted = len(slots.callers)
    shares = [Share(len(reaches), wanted)] if shares is None else shares
    noise = os.urandom(16 * wanted)  # not a counter: it would repeat ids after a failover that lost commits
    leases = [UUID(noise[i : i + 16]) for i in range(0, 16 * wanted, 16)]
    rows = await db.fetch(
        _CLAIM if tags is None else _CLAIM_TAGGED,
        topic.name,
        *inspector.columns(reaches),
        [reach.most_due for reach in reaches] if by_time else [],
        list(itertools.accumulate(share.lanes for share in shares)),
        [share.most for share in shares],
        leases,
        [caller + 1 for caller in slots.callers],
        slots.nodes,
        slots.leases_ms,
        budget.max_deliveries if budget.ends else None,
        whole,
        most_bytes,
        *(() if tags is None else (tags,)),
    )
    jobs_by_slot: dict[int, Job] = {}
    kinds: set[str] = set()
    crashes = suspects = 0
    seen: dict[int, LaneEnd] = {}
    at: int = rows.pop()["place"]
    waits: list[int] = []
    places: list[tuple[int, bool, int, int, Seq]] = []
    # RETURNING guarantees no order, so each row names its slot.
    for kind, lane, due, place, slot, seq, deliveries, deadline_ms, created, *fields, rare, more in rows:
        part = seen.get(lane - 1) or seen.setdefault(lane - 1, LaneEnd())
        _note_place(part, due=due, place=place, lost=kind in _NOT_LEASED)
        if kind in {"leased", "again"}:
            start = 16 * (slot - 1)
            of = reaches[lane - 1].lane
            columns = (*fields, more, of.tenant, of.priority, *(rare or ()))
            lease = noise[start : start + 16].hex()
            job = Job(seq, lease, deliveries, deadline_ms, round(created * 1000), *columns)
            jobs_by_slot[slot] = job
            if kind == "again":
                crashes += 1
                suspects += job.crashes == SUSPECTED_FROM
            if due:
                waits.append(at - place)
            elif job.original_topic is None:  # a moved job is older than its stay in this queue
                waits.append(at - job.created_ms * 1000)
            if by_time:
                places.append((lane, due, place, round(created * 1_000_000), job.seq))
        else:
            kinds.add(kind)
    jobs: list[list[Job]] = [[] for _ in slots.nodes]
    for slot in sorted(jobs_by_slot):
        jobs[slots.callers[slot - 1]].append(jobs_by_slot[slot])
    if by_time:
        turns = sort_keys(places)
        for share in jobs:
            share.sort(key=lambda job: turns[job.seq])
    exhausted, expired, cut, taken = (kind in kinds for kind in ("exhausted", "expired", "heavy", "taken"))
    return ClaimResult(jobs, exhausted, expired, seen, len(rows), at, cut, waits, crashes, suspects, taken)


_NOT_LEASED: Final = {"lost", "heavy", "taken"}


def _note_place(seen: LaneEnd, *, due: bool, place: int, lost: bool) -> None:
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


async def ack(
    db: Connection,
    topic: Topic,
    held: Sequence[HeldJob],
    ended: AckCounts | None = None,
    *,
    results: Sequence[str | None] = (),
    keep: Keep = NOTHING,
) -> set[int]:
    """Complete jobs. Returns the places in `held` of the completed jobs, and adds to `ended`. `held` must ascend by
    seq.

    results[i] is JSON text for held[i]; empty if there are no results.
    """
    records = keep.archived or keep.has_webhook or bool(results)
    done: set[int] = set()
    for _ in range(MAX_RUNS):
        places = _open_places(held, done)
        of = topic.name, *_columns(held, places)
        late = [held[i].late for i in places]
        if records:
            given = [results[i] for i in places] if results else []
            row = await _fetch_one(db, _ACK_AND_RECORD, *of, given, keep.ttl_ms, keep.archived, keep.has_webhook, late)
        else:
            row = await _fetch_one(db, _ACK, *of, late)
        done.update(places[i - 1] for i in row["done"])
        if ended is not None:
            ended.add(row)
        if len(row["done"]) == len(row["picked"]):
            break
        records = True  # the remaining jobs may have webhooks of their own
    return done


class Return(msgspec.Struct, frozen=True):
    """How one job is returned: after `delay_ms` (0: at once; None: the backoff's delay), with the holder's error.

    The delivery is given back if fewer than `refunds` deliveries of the job were. None: it is always given back and not
    counted, which is what the service does on its own account.
    """

    delay_ms: int | None = 0
    error: str | None = None
    refunds: int | None = 0


class LeaseState(NamedTuple):
    """A lease: whether its job was cancelled, and the deadline in ms since 1970."""

    lease: LeaseId
    cancelled: bool
    until_ms: int = 0


class NackResult(msgspec.Struct, frozen=True):
    """The result of a nack, as places in `held`."""

    done: set[int]  # returned to the queue
    keyed: set[int]  # not returned yet, because the job has a key: use `nack_keyed`
    spent: dict[int, LeaseState]  # no deliveries left, or cancelled: the lease that still holds the job
    refunded: set[int]  # places in `done` whose delivery was given back
    delays_ms: list[int]  # of the jobs in `done`, in no order


async def nack(
    db: Connection,
    topic: Topic,
    budget: Budget,
    held: Sequence[HeldJob],
    returns: Sequence[Return],
    *,
    backoff: Backoff | None = None,
) -> NackResult:
    """Return jobs to the queue. `held` must ascend by seq; returns[i] belongs to held[i]. The caller must remove the
    `spent` jobs with `Exits.remove_spent`."""
    done: set[int] = set()
    keyed: set[int] = set()
    spent: dict[int, LeaseState] = {}
    refunded: set[int] = set()
    delays: list[int] = []
    policy = _policy(backoff)
    for _ in range(MAX_RUNS):
        places = _open_places(held, done | keyed | spent.keys())
        row = await _fetch_one(
            db,
            _NACK,
            topic.name,
            *_columns(held, places),
            _delays(returns, places, policy),
            [returns[i].error for i in places],
            [returns[i].refunds for i in places],
            budget.ends,
            budget.max_deliveries,
            policy,
        )
        done.update(places[i - 1] for i in row["done"])
        endings = map(LeaseState, row["leases"], row["cancelled"])
        spent.update((places[i - 1], ending) for i, ending in zip(row["spent"], endings, strict=True))
        keyed.update(places[i - 1] for i in row["keyed"])
        refunded.update(places[i - 1] for i in row["refunded"])
        delays += row["delays"]
        if len(row["done"]) == len(row["picked"]):
            break
    return NackResult(done, keyed, spent, refunded, delays)


class KeyedNackResult(NamedTuple):
    """The result of a nack of jobs with keys, as places in `held`."""

    done: set[int]  # the caller held these
    ended: set[int]  # places in `done` that ended, because a newer job with their key waits
    refunded: set[int]
    delays_ms: list[int]  # of the jobs that did not end


async def nack_keyed(
    db: Connection, topic: Topic, held: Sequence[HeldJob], returns: Sequence[Return], *, backoff: Backoff | None = None
) -> KeyedNackResult:
    """Return jobs that have keys. `held` must ascend by seq. Waits for transactions that write the same keys. Raises
    SerializationError if a retry may succeed."""
    policy, places = _policy(backoff), _open_places(held, set())
    row = await _fetch_one(
        db,
        _NACK_KEYED,
        topic.name,
        *_columns(held, places),
        _delays(returns, places, policy),
        [one.error for one in returns],
        [one.refunds for one in returns],
        policy,
    )
    done, ended, refunded = ({i - 1 for i in row[name]} for name in ("done", "superseded", "refunded"))
    return KeyedNackResult(done, ended, refunded - ended, row["delays"])


async def extend(
    db: Connection,
    topic: Topic,
    held: Sequence[HeldJob],
    leases_ms: Sequence[int],
    cancelled: set[int] | None = None,
    *,
    progress: Sequence[Progress | None] = (),
) -> dict[int, int]:
    """Set deadlines to now + leases_ms[i]. Returns the new deadline in ms since 1970 by place in `held`, which must
    ascend by seq.

    cancelled: the places of cancelled jobs are added to it.
    progress: the progress by place; empty if there is none.
    """
    done: dict[int, int] = {}
    for _ in range(MAX_RUNS):
        places = _open_places(held, done)
        said = [progress[i] for i in places] if progress else []
        how = [one and one.percent for one in said], [one and one.note for one in said]
        row = await _fetch_one(db, _EXTEND, topic.name, *_columns(held, places), [leases_ms[i] for i in places], *how)
        done.update((places[i - 1], deadline) for i, deadline in zip(row["done"], row["deadlines"], strict=True))
        if cancelled is not None:
            cancelled.update(places[i - 1] for i in row["cancelled"])
        if len(row["done"]) == len(row["picked"]):
            break
    return done


async def still_held(db: Connection, topic: Topic, leases: Sequence[tuple[int, LeaseId]]) -> set[int]:
    """The places of the (seq, lease id) pairs whose lease is valid."""
    places: list[int] = await db.fetchval(_HELD, topic.name, [seq for seq, _ in leases], [lease for _, lease in leases])
    return {place - 1 for place in places}


async def leases(db: Connection, topic: Topic, held: Sequence[HeldJob]) -> dict[int, LeaseState]:
    """The leases of the jobs that the caller holds, by place in `held`."""
    rows = await db.fetch(_LEASES, topic.name, *_columns(held, list(range(len(held)))))
    return {row["ord"] - 1: LeaseState(row["lease_id"], row["cancelled"], row["until_ms"]) for row in rows}


def _policy(backoff: Backoff | None) -> str | None:
    return None if backoff is None else msgspec.json.encode(backoff).decode()


def _delays(returns: Sequence[Return], places: Sequence[int], policy: str | None) -> list[int | None]:
    """Delays in ms. Without a backoff, None becomes 0."""
    if policy is not None:
        return [returns[i].delay_ms for i in places]
    return [returns[i].delay_ms or 0 for i in places]


def _open_places(held: Sequence[HeldJob], settled: set[int] | dict[int, int]) -> list[int]:
    """The places that the next run has to settle."""
    if settled:
        return [i for i in range(len(held)) if i not in settled]
    # Every verb locks rows in this order. In another order, two batches could deadlock.
    assert all(a.seq <= b.seq for a, b in itertools.pairwise(held)), "held must ascend by seq"
    return list(range(len(held)))


def _columns(held: Sequence[HeldJob], places: list[int]) -> tuple[list[int], list[LeaseId | None], list[str | None]]:
    return [held[i].seq for i in places], [held[i].lease for i in places], [held[i].node for i in places]


async def _fetch_one(db: Connection, query: str, *args: Any) -> Any:
    row = await db.fetchrow(query, *args)
    assert row is not None, "the statement answers one row always"
    return row
