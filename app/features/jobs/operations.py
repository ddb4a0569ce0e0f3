"""The rows of operations, which are requeues and cancels of many jobs. A row keeps an operation's progress.

An operation belongs to the process that sends its heartbeats. When these stop, any process may adopt it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, Literal
from uuid import UUID

import asyncpg
import msgspec

from app.base.db import sql
from app.kernel.jobs import JobMatch
from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_BEGIN = _SQL["begin_operation"]
_READ = _SQL["read_operation"]
_LIST = _SQL["list_operations"]
_HOLD = _SQL["hold_operation"]
_ADVANCE = _SQL["advance_operation"]
_END = _SQL["end_operation"]
_CANCEL = _SQL["cancel_operation"]
_LEAVE = _SQL["leave_operation"]
_ADOPT = _SQL["adopt_operations"]
_SWEEP = _SQL["sweep_operations"]

MOST_REASON: Final = 500  # characters
THE_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST: Final = 9  # the stage after all others
LOOKED_AT: Final = 1_000  # running operations, and as many ended ones, that are searched for those of a topic


class First(msgspec.Struct, frozen=True):
    """Where a requeued job is now, and the topic and seq in its id."""

    topic: str
    topic_id: int
    seq: int
    id_topic: int
    id_seq: int


class Filter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which failed jobs to take; None means any.

    `error`: a part of the last error, matched literally. `cluster`: the kind of failure.
    """

    error: str | None = None
    tag: str | None = None
    key: str | None = None
    tenant: str | None = None
    cluster: str | None = None
    older_than_ms: int = 0  # since the job failed


class SearchPlace(msgspec.Struct, frozen=True):
    """A position in the order in which a topic's jobs failed."""

    time: datetime = THE_BEGINNING
    seq: int = 0


class OperationState(Enum):
    """CANARY: the first jobs are being requeued or have not ended yet."""

    CANARY = "canary"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    FAILED = "failed"


class Canary(msgspec.Struct, frozen=True):
    """A trial with the `first` jobs.

    The others stay where they are if more than `stop_at_percent` of the first fail again, or if the first have not all
    ended within `timeout_ms`.
    """

    first: int
    stop_at_percent: float
    timeout_ms: int


class OperationRequest(msgspec.Struct, frozen=True):
    """The jobs to requeue or cancel.

    `topic`: its jobs, as (name, id). `dead`: its dead-letter topic, as (name, id).
    `match`: the jobs to requeue. `cancels`: the jobs to cancel, None for a requeue.
    `seqs`: only these jobs. `rate`: jobs a second, 0 for no limit. `starts`: as in a Search.
    """

    topic: tuple[str, int]
    dead: tuple[str, int] | None = None
    match: Filter = Filter()
    seqs: Sequence[int] | None = None
    rate: int = 0
    canary: Canary | None = None
    starts: Sequence[str] = ()
    cancels: JobMatch | None = None

    @property
    def kind(self) -> Literal["requeue", "cancel"]:
        return "requeue" if self.cancels is None else "cancel"


class MatchCount(msgspec.Struct, frozen=True):
    """How many jobs match. Unless `exact`, there may be more."""

    count: int
    exact: bool


class Operation(msgspec.Struct, frozen=True):
    """An operation and its progress.

    `first`: the first jobs of a canary. `failed_again`: how many of them failed. `late`: whether they took too long.
    `stage` and `at`: how far it has come. `gone` and `marked`: the counts of a cancel, as in CancelResult.
    """

    id: UUID
    wanted: OperationRequest
    state: OperationState
    reason: str | None
    matched: MatchCount
    requeued: int
    gone: int
    marked: int
    skipped: int
    failed_again: int
    first: list[First]
    first_until: datetime | None
    late: bool
    stage: int
    at: SearchPlace
    until: datetime
    cancelled: bool
    started_at: datetime
    ended_at: datetime | None
    actor: tuple[str, str | None, str | None]  # id, name, address

    @property
    def jobs_done(self) -> int:
        return self.requeued + self.gone + self.marked


async def begin(
    db: Connection,
    new: UUID,
    owner: UUID,
    wanted: OperationRequest,
    *,
    until: datetime,
    matched: MatchCount,
    actor: tuple[str, str | None, str | None],
) -> None:
    """Store a new operation, run by `owner`."""
    canary = None if wanted.canary is None else _text(wanted.canary)
    await db.execute(
        _BEGIN,
        *(new, owner, *wanted.topic, *(wanted.dead or (None, None)), until),
        *(None if wanted.seqs is None else list(wanted.seqs), list(wanted.starts)),
        None if wanted.cancels is not None else _text(wanted.match),
        *(wanted.rate, canary, matched.count, matched.exact, *actor),
        None if wanted.cancels is None else _text(wanted.cancels),
    )


async def read(db: Connection, which: UUID) -> Operation | None:
    """An operation, None if there is none with this id."""
    row = await db.fetchrow(_READ, which)
    return None if row is None else _operation(row)


async def of_topic(db: Connection, topic: str, limit: int) -> list[Operation]:
    """A topic's operations, running ones first, then newest first.

    Searches LOOKED_AT running operations of all topics, and the LOOKED_AT that ended last.
    """
    return [_operation(row) for row in await db.fetch(_LIST, topic, LOOKED_AT, limit)]


async def hold(db: Connection, which: UUID, owner: UUID) -> Operation | None:
    """Lock an operation for the transaction and renew its heartbeat. None if it no longer belongs to `owner`."""
    row = await db.fetchrow(_HOLD, which, owner)
    return None if row is None else _operation(row)


class OperationStep(msgspec.Struct, frozen=True):
    """The outcome of a batch, and the operation's progress after it. `wait_ms`: how long to wait for the first jobs."""

    state: OperationState
    stage: int
    at: SearchPlace
    first: Sequence[First]
    requeued: int = 0
    gone: int = 0
    marked: int = 0
    skipped: int = 0
    failed_again: int = 0
    wait_ms: int | None = None

    @property
    def jobs_done(self) -> int:
        return self.requeued + self.gone + self.marked


async def advance(db: Connection, which: UUID, step: OperationStep) -> None:
    """Store a step. `db` is the connection of the batch's own transaction."""
    await db.execute(
        _ADVANCE,
        *(which, step.state.value, step.requeued, step.skipped, step.failed_again, step.stage),
        *(step.at.time, step.at.seq, _text(step.first), step.wait_ms, step.gone, step.marked),
    )


async def end(db: Connection, which: UUID, state: OperationState, reason: str | None, failed_again: int) -> bool:
    """End the operation. Returns whether it had not ended before."""
    why = None if reason is None else reason[:MOST_REASON].replace("\0", "")
    return await db.fetchval(_END, which, state.value, why, failed_again) is not None


async def cancel(db: Connection, which: UUID) -> bool:
    """Ask the operation to end. Returns False if it has ended or was asked before."""
    return await db.fetchval(_CANCEL, which) is not None


async def leave(db: Connection, which: UUID, owner: UUID) -> None:
    await db.fetchval(_LEAVE, which, owner)


async def adopt(db: Connection, owner: UUID, dead: timedelta, limit: int) -> list[UUID]:
    """Take over up to `limit` operations without a heartbeat for the time `dead`. Returns their ids."""
    return [UUID(bytes=row["id"].bytes) for row in await db.fetch(_ADOPT, owner, dead, limit)]


async def sweep(db: Connection, keep: timedelta, limit: int) -> int:
    """Delete up to `limit` operations that ended longer ago than `keep`. Returns how many."""
    count: int = await db.fetchval(_SWEEP, keep, limit)
    return count


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _operation(row: asyncpg.Record) -> Operation:
    dead = None if row["dead_topic"] is None else (row["dead_topic"], row["dead_id"])
    canary = None if row["canary"] is None else msgspec.json.decode(row["canary"], type=Canary)
    match = Filter() if row["filter"] is None else msgspec.json.decode(row["filter"], type=Filter)
    cancels = None if row["cancels"] is None else msgspec.json.decode(row["cancels"], type=JobMatch)
    topic = (row["topic"], row["topic_id"])
    return Operation(
        id=row["id"],
        wanted=OperationRequest(topic, dead, match, row["seqs"], row["rate"], canary, row["starts"], cancels),
        state=OperationState(row["state"]),
        reason=row["reason"],
        matched=MatchCount(row["matched"], row["matched_exact"]),
        requeued=row["requeued"],
        gone=row["gone"],
        marked=row["marked"],
        skipped=row["skipped"],
        failed_again=row["failed_again"],
        first=msgspec.json.decode(row["canary_jobs"], type=list[First]),
        first_until=row["canary_until"],
        late=bool(row["late"]),
        stage=row["stage"],
        at=SearchPlace(row["after_time"], row["after_seq"]),
        until=row["until_time"],
        cancelled=row["cancelled"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        actor=(row["actor"], row["actor_name"], row["address"]),
    )
