"""The statements that end jobs other than by an ack: dead letters, failures, expiry, deletion. docs/semantics.md,
sections 2 and 10."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from app.base.db import sql
from app.kernel.logs import log
from app.kernel.logs.log import AppendOutcome, AppendPart, Limits, TagMatch
from app.kernel.model import Batch, Budget, Connection, Lane, LeaseId, Topic, as_json

_BURY = sql.load(__package__, "bury")
_SQL: Final = sql.load_all(__package__)
_SPENT = _SQL["spent"]
_INTER = _SQL["inter"]
_FAIL = sql.load(__package__, "fail")
_EXPIRE = sql.load(__package__, "expire")
_EXHAUSTED = _SQL["exhausted"]
_SWEEP_FINISHED = _SQL["sweep_finished"]
_DELETE_EXPIRED = _SQL["delete_expired"]
_DELETE_JOBS = _SQL["delete_jobs"]
_DELETE_KEY = _SQL["delete_key"]
_SUPERSEDE = _SQL["supersede"]
_CANCEL_HELD = _SQL["cancel_held"]

RECORDED_AT_ONCE: Final = 8 * 1024 * 1024  # most bytes of dead letters that one transaction moves to a log


class Spent(msgspec.Struct, frozen=True):
    """A job that may end. With a lease, its holder fails it, whatever deliveries are left. Without one, it ends only if
    no worker holds it and it has no deliveries left. `cancelled`: as far as known, the job was cancelled."""

    seq: int
    lease: LeaseId | None = None
    error: str | None = None
    cancelled: bool = False


class ExitCounts(msgspec.Struct):
    """Counts of jobs that ended."""

    suspects: int = 0  # jobs whose lease ran out for the second time just now
    cancelled: int = 0


async def move_to_dead_letters(
    db: Connection,
    topic: Topic,
    budget: Budget,
    spent: Sequence[Spent],
    dead_letter: Topic,
    *,
    seen: ExitCounts | None = None,
    has_webhook: bool = False,
) -> set[int]:
    """Move jobs to the dead-letter topic. Returns the places in `spent` that were moved, and adds to `seen`. `spent`
    must ascend by seq. `has_webhook`, here and below: the topic has a webhook, which gets an event for each job."""
    target = (dead_letter.name, dead_letter.id, dead_letter.sequence)
    return _removed_places(await db.fetchrow(_BURY, *_arguments(topic, budget, spent), *target, has_webhook), seen)


class LogMove(msgspec.Struct, frozen=True):
    """The result of moving dead letters to a log, as places in `spent`."""

    recorded: set[int]  # they are records of the log now
    failed: set[int]  # the log was full, so they stay as failed jobs
    suspects: int = 0  # as in ExitCounts


async def move_to_log(
    db: Connection,
    topic: Topic,
    budget: Budget,
    spent: Sequence[Spent],
    dead_letter: Topic,
    *,
    limits: Limits,
    has_webhook: bool = False,
) -> LogMove:
    """Turn jobs into records of a log, up to RECORDED_AT_ONCE bytes and at least one job. Call it again for the rest,
    until it finds none. `spent` must ascend by seq.

    `db` must be in a transaction, which deletes the jobs and adds the records. The log's caps and age limit apply. If
    the log refuses records because it is full, the job fails in place and its error says so. Raises log.Gone if the log
    does not exist any more.
    """
    name, seqs, leases, _, most = _arguments(topic, budget, spent)
    rows = await db.fetch(_SPENT, name, seqs, leases, most, RECORDED_AT_ONCE)
    if not rows:
        return LogMove(set(), set())
    payloads = [as_json(row["payload"], row["content_type"]) for row in rows]  # a log holds JSON only
    batch = Batch.of(
        payloads,
        tags=[row["tag"] for row in rows],
        producers=[row["producer"] for row in rows],
        metadata=[row["metadata"] for row in rows],
    )
    parts = [
        AppendPart(1, len(payload) + len(row["metadata"].encode())) for payload, row in zip(payloads, rows, strict=True)
    ]
    places = [row["ord"] - 1 for row in rows]
    outcomes = [one.outcome for one in await log.append(db, dead_letter, batch, parts, limits)]
    written = [i for i, outcome in enumerate(outcomes) if outcome is AppendOutcome.WRITTEN]
    if written:
        tids, errors = [rows[i]["tid"] for i in written], [spent[places[i]].error for i in written]
        await db.fetchval(_INTER, name, tids, errors, has_webhook)
    seen = ExitCounts(sum(rows[i]["suspect"] for i in written))
    refused = [places[i] for i, outcome in enumerate(outcomes) if outcome is not AppendOutcome.WRITTEN]
    if refused:
        await fail(
            db,
            topic,
            budget,
            [_without_room(spent[place], dead_letter) for place in refused],
            seen=seen,
            has_webhook=has_webhook,
        )
    return LogMove({places[i] for i in written}, set(refused), seen.suspects)


def _without_room(job: Spent, dead_letter: Topic) -> Spent:
    reason = f"The dead-letter log {dead_letter.name} is full"
    return Spent(job.seq, job.lease, f"{reason}: {job.error}" if job.error else reason)


async def fail(
    db: Connection,
    topic: Topic,
    budget: Budget,
    spent: Sequence[Spent],
    *,
    seen: ExitCounts | None = None,
    has_webhook: bool = False,
) -> set[int]:
    """End jobs as failed. Returns the places in `spent` that ended; adds to `seen`. `spent` must ascend by seq."""
    return _removed_places(await db.fetchrow(_FAIL, *_arguments(topic, budget, spent), has_webhook), seen)


async def cancel_held(db: Connection, topic: Topic, spent: Sequence[Spent]) -> set[int]:
    """End cancelled jobs that their holders give up. Returns their places in `spent`, which must ascend by seq."""
    *arguments, _ = _arguments(topic, Budget(ends=False, max_deliveries=0), spent)
    return {place - 1 for place in await db.fetchval(_CANCEL_HELD, *arguments)}


async def find_exhausted(
    db: Connection, topic: Topic, budget: Budget, lanes: Sequence[Lane], limit: int
) -> list[Spent]:
    """Jobs of these lanes whose last lease ran out, at most `limit`, ascending by seq."""
    tenants, priorities = [lane.tenant for lane in lanes], [lane.priority for lane in lanes]
    rows = await db.fetch(_EXHAUSTED, topic.name, tenants, priorities, budget.max_deliveries, limit)
    return sorted((Spent(row["seq"]) for row in rows), key=lambda job: job.seq)


async def expire(db: Connection, topic: str, limit: int, *, seen: ExitCounts | None = None) -> int:
    """Mark expired jobs, and end cancelled jobs whose leases ran out. Returns how many; adds to `seen`."""
    row = await db.fetchrow(_EXPIRE, topic, limit)
    assert row is not None, "the statement always answers one row"
    if seen is not None:
        seen.suspects += row["suspects"]
        seen.cancelled += row["cancelled"]
    count: int = row["expired"] + row["cancelled"]
    return count


async def sweep_finished(db: Connection, topic: str, keep: timedelta, limit: int) -> int:
    """Delete jobs that failed or expired longer ago than `keep`, at most `limit`. Returns how many."""
    count: int = await db.fetchval(_SWEEP_FINISHED, topic, keep, limit)
    return count


async def delete_expired(
    db: Connection, topic: str, after: tuple[datetime, int], limit: int
) -> tuple[int, tuple[datetime, int] | None]:
    """Read the next `limit` jobs that ended `after` a place, in the order in which they ended, and delete those marked
    as expired. Returns how many were deleted, and the place of the last job that was read, None at the end."""
    row = await db.fetchrow(_DELETE_EXPIRED, topic, *after, limit)
    assert row is not None, "the statement always answers one row"
    return row["deleted"], None if row["last_seq"] is None else (row["last_at"], row["last_seq"])


class MatchDeletion(msgspec.Struct, frozen=True):
    """The result of one batch of a deletion by filter."""

    count: int
    ready: int  # how many of them were ready
    last_seq: int | None  # the last seq that was read; None at the end
    marked: int  # leased jobs that were marked: they are deleted once their leases end


async def delete(db: Connection, topic: Topic, match: TagMatch, *, after: int, upto: int, limit: int) -> MatchDeletion:
    """Delete waiting jobs that match, and mark leased ones. Reads up to `limit` jobs with after < seq <= upto."""
    count = ready = marked = 0
    row = None
    while row is None or row["deleted"] + row["marked"] < row["picked"]:
        row = await db.fetchrow(_DELETE_JOBS, topic.name, after, upto, match.tag, match.prefix, limit)
        assert row is not None, "the statement always answers one row"
        count, ready, marked = count + row["deleted"], ready + row["ready"], marked + row["marked"]
    return MatchDeletion(count, ready, row["last_seq"], marked)


class KeyDeletion(msgspec.Struct, frozen=True):
    """The result of one batch of a deletion by key."""

    count: int
    ready: int  # how many of them were ready
    leased: int  # how many of them were leased
    more: bool  # whether there may be more


async def delete_key(db: Connection, topic: Topic, tenant: str, key: str, limit: int) -> KeyDeletion:
    """Delete up to `limit` jobs of a tenant and key in any state. A leased job is lost for its holder."""
    row = await db.fetchrow(_DELETE_KEY, topic.name, tenant, key, limit)
    assert row is not None, "the statement always answers one row"
    more = row["looked"] >= limit or row["deleted"] < row["looked"]
    return KeyDeletion(row["deleted"], row["ready"], row["leased"], more)


class Lease(msgspec.Struct, frozen=True):
    """A position among a topic's leases of jobs with keys. The default comes before all of them."""

    tenant: str = ""
    key: str = ""
    seq: int = 0


async def end_superseded(
    db: Connection, topic: Topic, budget: Budget, after: Lease, limit: int
) -> tuple[int, Lease | None]:
    """End jobs whose lease ran out while a newer job with their key waits, or the waiting job if it is older.

    Reads up to `limit` leases after a position. Returns how many jobs ended, and the last position, None at the end.
    """
    row = await db.fetchrow(
        _SUPERSEDE, topic.name, after.tenant, after.key, after.seq, limit, budget.ends, budget.max_deliveries
    )
    assert row is not None, "the statement always answers one row"
    last = None if row["seq"] is None else Lease(row["tenant"], row["key"], row["seq"])
    return row["ended"], last


def _removed_places(row: Any, seen: ExitCounts | None) -> set[int]:
    assert row is not None, "the statement always answers one row"
    if seen is not None:
        seen.suspects += row["suspects"]
    return {place - 1 for place in row["done"]}


def _arguments(
    topic: Topic, budget: Budget, spent: Sequence[Spent]
) -> tuple[str, list[int], list[LeaseId | None], list[str | None], int]:
    seqs = [job.seq for job in spent]
    assert seqs == sorted(seqs), "spent must ascend by seq: rows are locked in this order"
    return topic.name, seqs, [job.lease for job in spent], [job.error for job in spent], budget.max_deliveries
