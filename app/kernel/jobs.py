"""Jobs as pages and the API show them: one by one, by status, newest first. Only `purge` changes any."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import ClassVar, Final

import msgspec

from app.base.db import sql
from app.kernel.model import Connection, Hideable, Seq, Topic

_FIND = sql.load(__package__, "find_jobs")
_SQL: Final = sql.load_all(__package__)
_FIND_DATA = _SQL["find_data"]
_KEY_SEQS = _SQL["key_seqs"]
_LIST_JOBS = _SQL["list_jobs"]
_LIST_HELD = _SQL["list_held"]
_LIST_FINISHED = _SQL["list_finished"]
_LIST_NEWEST = _SQL["list_newest"]
_SHOW_JOBS = _SQL["show_jobs"]
_FIND_LETTERS = _SQL["find_letters"]
_STATUSES = _SQL["statuses"]
_COUNT_ALL = _SQL["count_all"]
_PURGE = _SQL["purge"]

LOOKED_AT: Final = 10_000  # most jobs that a page by status, or a count, reads
BIGINT_MAX: Final = 2**63 - 1
PAGE_BYTES: Final = 16 * 1024 * 1024  # of payloads that are shown at once; the last one may exceed it


class Status(Enum):
    """A job's state by the database's clock. A job whose lease has ended is pending. An expired job is expired whether
    it was marked or not, unless it has a valid lease."""

    PENDING = "pending"
    PROCESSING = "processing"
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def states(self) -> tuple[str, ...]:
        """Its states in JobView. A cancelled job counts as expired (see cancel_jobs.sql)."""
        return _STATES[self]


_STATES: Final = {
    Status.PENDING: ("ready", "scheduled", "blocked"),
    Status.PROCESSING: ("leased",),
    Status.FAILED: ("failed",),
    Status.EXPIRED: ("expired", "cancelled"),
}
_STATUS: Final = {state: status for status, states in _STATES.items() for state in states}


class JobPlace(msgspec.Struct, frozen=True):
    topic: str
    topic_id: int
    seq: Seq


class JobView(Hideable, frozen=True):
    """A job. Times are in ms since 1970.

    state: by the database's clock: ready, scheduled, blocked, leased, failed, expired, or cancelled (after its lease
    ended).
    cancelled: whether it was cancelled, also while its lease is valid.
    visible_ms: when a lease or a delay ends.
    first_*: the job whose id a dead letter has.
    crashes: leases that ran out. original_crashes: the same of a dead letter, before it was one.
    percent: its progress as reported by its holder, with `note`, at `progress_ms`; None if there is no report.
    hidden: whether the caller must not see its contents.
    """

    SECRET: ClassVar = {"payload": b"", "metadata": None}

    topic: str
    topic_id: int
    seq: Seq
    state: str
    cancelled: bool
    node: str | None
    leased_ms: int | None
    original_seq: int | None
    original_deliveries: int | None
    deliveries: int
    priority: int
    max_deliveries: int | None
    last_error: str | None
    tag: str | None
    metadata: str | None
    payload: bytes
    content_type: str | None
    created_ms: int
    updated_ms: int
    visible_ms: int
    expires_ms: int | None
    original_topic: str | None
    dlq_moved_ms: int | None
    first_topic_id: int | None
    first_seq: int | None
    key: str | None
    crashes: int
    original_crashes: int | None
    group: str | None
    tenant: str  # a dead letter has the tenant it had before
    percent: int | None
    note: str | None
    progress_ms: int | None
    hidden: bool = False

    @property
    def status(self) -> Status:
        return _STATUS[self.state]


class SeqPage(msgspec.Struct, frozen=True):
    """Seqs in descending order, and below which seq the next page begins; None: this is the last page. `matched`: how
    many of the jobs that were read are suspected, if that was asked for."""

    seqs: list[Seq]
    next_below: int | None
    matched: int | None = None


async def page(
    db: Connection,
    topic: Topic,
    status: Status | None,
    *,
    below: int,
    limit: int,
    offset: int,
    suspected: bool = False,
) -> SeqPage:
    """Up to `limit` jobs with seqs under `below`, newest first, without the first `offset`.

    With a status, the LOOKED_AT newest jobs are read, so a page may have fewer jobs than `limit` and still be followed
    by another. For leased, failed and expired jobs, LOOKED_AT jobs of that status are read. `suspected`: only suspected
    poison pills, of any status, among the LOOKED_AT newest jobs.
    """
    only = None if status is None else status.value
    match None if suspected else status:
        case None | Status.PENDING:
            looks = LOOKED_AT if only or suspected else offset + limit
            row = await db.fetchrow(
                _LIST_JOBS,
                topic.name,
                below,
                None if status is None else list(status.states),
                limit,
                offset,
                max(looks, offset + limit),
                suspected,
            )
            assert row is not None, "the statement always answers one row"
            seqs: list[Seq] = row["seqs"]
            if len(seqs) == limit:
                return SeqPage(seqs, seqs[-1], row["matched"])
            return SeqPage(
                seqs, row["last_seq"] if row["looked"] >= max(looks, offset + limit) else None, row["matched"]
            )
        case Status.PROCESSING:
            seqs = await db.fetchval(_LIST_HELD, topic.name, below, limit, offset, LOOKED_AT)
        case Status.FAILED | Status.EXPIRED:
            seqs = await db.fetchval(_LIST_FINISHED, topic.name, below, only, limit, offset, LOOKED_AT)
    return SeqPage(seqs, seqs[-1] if len(seqs) == limit else None)


MAX_PATH: Final = 256  # characters
MAX_VALUE: Final = 1_024


class Datum(msgspec.Struct, frozen=True):
    """A value in a payload: its path, as keys and places in lists from the outside in, and its text."""

    path: tuple[str, ...]
    value: str


class JobMatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter for jobs; None is any. `states` are those of JobView. `older_than_ms`: enqueued so long ago or longer.
    `node`: of the holder. `error`: a part of the last error, case-sensitive. `data`: values in a JSON payload, all of
    which must match."""

    states: Sequence[str] | None = None
    tenant: str | None = None
    tag: str | None = None
    key: str | None = None
    group: str | None = None
    older_than_ms: int | None = None
    priority: int | None = None
    node: str | None = None
    error: str | None = None
    data: tuple[Datum, ...] = ()

    @property
    def is_all(self) -> bool:
        """Whether every job matches."""
        return self == _ALL


_ALL: Final = JobMatch()
_OUT: Final = {"failed": "failed", "expired": "expired", "cancelled": "expired"}  # parameters for list_finished


class MatchingSeqs(msgspec.Struct, frozen=True):
    """Seqs in the given order, and after which seq the next page begins; None: this is the last page."""

    seqs: list[Seq]
    next_behind: int | None


async def find(
    db: Connection,
    topic: Topic,
    match: JobMatch,
    *,
    oldest_first: bool,
    behind: int,
    limit: int,
    by: datetime | None = None,
    one_by_one: bool = False,
) -> MatchingSeqs:
    """Up to `limit` jobs that match, after the seq `behind` in the given order. `by`: enqueued until then.

    At most LOOKED_AT jobs and PAGE_BYTES of payloads are read, so a page may have fewer jobs than `limit` and still be
    followed by another. For a key, and for leased, failed or expired jobs, LOOKED_AT jobs of that kind are read.
    `one_by_one`: do so only for a key, if it has fewer jobs than that.
    """
    among = await _among(db, topic, match, one_by_one=one_by_one)
    looks = limit if match.is_all else LOOKED_AT
    most = LOOKED_AT if match.data else limit
    row = await db.fetchrow(
        _FIND,
        topic.name,
        topic.id,
        among,
        oldest_first,
        behind,
        looks,
        most,
        None if match.states is None else list(match.states),
        match.tenant,
        match.tag,
        match.key,
        match.group,
        match.older_than_ms,
        match.priority,
        match.node,
        match.error,
        by,
    )
    assert row is not None, "the statement always answers one row"
    seqs: list[Seq] = row["seqs"]
    found = MatchingSeqs(seqs, seqs[-1] if len(seqs) == most else None)
    if found.next_behind is None and among is None and row["looked"] >= looks:
        found = MatchingSeqs(seqs, row["last_seq"])
    return await _with_data(db, topic, match.data, found, limit) if match.data and seqs else found


async def _with_data(
    db: Connection, topic: Topic, data: Sequence[Datum], among: MatchingSeqs, limit: int
) -> MatchingSeqs:
    """Up to `limit` of these jobs that have the data in their payloads."""
    keys = [key for one in data for key in one.path]
    ends = list(itertools.accumulate(len(one.path) for one in data))
    values = [one.value for one in data]
    row = await db.fetchrow(_FIND_DATA, topic.name, topic.id, among.seqs, keys, ends, values, PAGE_BYTES, limit)
    assert row is not None, "the statement always answers one row"
    seqs: list[Seq] = row["seqs"]
    if len(seqs) == limit:
        return MatchingSeqs(seqs, seqs[-1])
    return MatchingSeqs(seqs, among.next_behind if row["last_seq"] is None else row["last_seq"])


class JobPage(msgspec.Struct, frozen=True):
    """Jobs in the given order, and after which seq the next page begins; None: this is the last page."""

    jobs: list[JobView]
    next_behind: int | None


async def list_page(
    db: Connection, topic: Topic, match: JobMatch, *, oldest_first: bool, behind: int | None, limit: int
) -> JobPage:
    """As `find`, with whole jobs, from the beginning if `behind` is None. PAGE_BYTES of payloads end a page earlier."""
    start = (0 if oldest_first else BIGINT_MAX) if behind is None else behind
    found = await find(db, topic, match, oldest_first=oldest_first, behind=start, limit=limit)
    jobs = await show(db, [JobPlace(topic.name, topic.id, seq) for seq in found.seqs])
    if len(jobs) < len(found.seqs) and jobs:  # their payloads filled the page, or some were deleted meanwhile
        return JobPage(jobs, jobs[-1].seq)
    return JobPage(jobs, found.next_behind)


async def _among(db: Connection, topic: Topic, match: JobMatch, *, one_by_one: bool) -> list[Seq] | None:
    """The seqs that can match, if an index has few of them; None: any."""
    seqs: list[Seq]
    if match.key is not None:
        seqs = await db.fetchval(_KEY_SEQS, topic.name, match.tenant, match.key, LOOKED_AT)
        return None if one_by_one and len(seqs) == LOOKED_AT else seqs
    if one_by_one:
        return None
    match ["leased"] if match.states is None and match.node is not None else match.states:
        case ["leased"]:
            seqs = await db.fetchval(_LIST_HELD, topic.name, BIGINT_MAX, LOOKED_AT, 0, LOOKED_AT)
        case [state] if state in _OUT:
            seqs = await db.fetchval(_LIST_FINISHED, topic.name, BIGINT_MAX, _OUT[state], LOOKED_AT, 0, LOOKED_AT)
        case _:
            return None
    return seqs


async def newest(db: Connection, limit: int, offset: int) -> list[JobPlace]:
    """Where the newest jobs of all topics are, without the first `offset`. Costs (offset + limit)² at worst."""
    rows = await db.fetch(_LIST_NEWEST, limit, offset, limit + offset)
    return [JobPlace(**dict(row)) for row in rows]


async def show(db: Connection, places: Sequence[JobPlace]) -> list[JobView]:
    """The jobs at these places, in their order. Deleted jobs are left out. Stops after PAGE_BYTES of payloads."""
    rows = await db.fetch(
        _SHOW_JOBS,
        [place.topic for place in places],
        [place.topic_id for place in places],
        [place.seq for place in places],
        PAGE_BYTES,
    )
    return [JobView(**dict(row)) for row in rows]


async def find_letters(db: Connection, first: Sequence[tuple[int, int]]) -> dict[int, JobPlace]:
    """Where dead letters are now, by place in `first`, which has the (topic id, seq) that they had at first."""
    rows = await db.fetch(_FIND_LETTERS, [topic_id for topic_id, _ in first], [seq for _, seq in first])
    return {row["ord"] - 1: JobPlace(row["topic"], row["topic_id"], row["seq"]) for row in rows}


class Statuses(msgspec.Struct, frozen=True):
    topic: str
    pending: int
    processing: int
    failed: int
    expired: int

    def of(self, status: Status | None) -> int:
        """How many jobs have a status; with None, how many there are in all."""
        if status is None:
            return self.pending + self.processing + self.failed + self.expired
        count: int = getattr(self, status.value)
        return count


async def statuses(db: Connection, topics: Sequence[Topic]) -> list[Statuses]:
    """Topics' jobs by status. Reads at most LOOKED_AT due or expired jobs of each."""
    rows = await db.fetch(_STATUSES, [topic.name for topic in topics], [topic.id for topic in topics], LOOKED_AT)
    return [Statuses(**dict(row)) for row in rows]


async def count_all(db: Connection) -> int:
    count: int = await db.fetchval(_COUNT_ALL)
    return count


class PurgeStep(msgspec.Struct, frozen=True):
    """The result of one batch of a purge. `ready` and `in_flight`: how many of the deleted jobs were. `last_seq`: the
    last seq that was read, None at the end."""

    count: int
    ready: int
    in_flight: int
    last_seq: int | None


async def purge(
    db: Connection, topic: Topic, statuses: Sequence[Status], *, after: int, upto: int, limit: int
) -> PurgeStep:
    """Delete jobs of these statuses. Reads up to `limit` jobs with after < seq <= upto."""
    count = ready = in_flight = 0
    states = [state for status in statuses for state in status.states]
    row = None
    while row is None or row["deleted"] < row["picked"]:
        row = await db.fetchrow(_PURGE, topic.name, after, upto, states, limit)
        assert row is not None, "the statement always answers one row"
        count, ready, in_flight = count + row["deleted"], ready + row["ready"], in_flight + row["in_flight"]
    return PurgeStep(count, ready, in_flight, row["last_seq"])
