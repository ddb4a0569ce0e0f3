"""What the verbs take and give: topics as statements know them, jobs, leases and batches of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple, NewType, Protocol

import asyncpg
import msgspec
from asyncpg.pgproto.pgproto import UUID

Seq = NewType("Seq", int)
LeaseId = UUID

MAX_TAG_BYTES: Final = 256
MAX_JOB_KEY: Final = 256  # characters
MAX_GROUP: Final = 128  # characters


class Connection(Protocol):
    """A pool or a connection; with the latter, the caller owns the transaction."""

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]: ...
    async def fetchrow(self, query: str, *args: Any) -> asyncpg.Record | None: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...
    async def execute(self, query: str, *args: Any) -> str: ...


class Session(Connection, Protocol):
    """A connection, which can have transactions of its own, and savepoints in them."""

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...


class Topic(msgspec.Struct, frozen=True):
    """A topic as the statements name it. `id` tells it from an earlier one of the same name."""

    name: str
    id: int
    sequence: int  # oid of the sequence that gives its seqs and positions


class Budget(msgspec.Struct, frozen=True):
    """How many deliveries a job gets. Without `ends` any number; with it, `max_deliveries`, unless the job has its
    own limit; 0 is no limit."""

    ends: bool
    max_deliveries: int


class Lane(msgspec.Struct, frozen=True):
    """Jobs of one tenant and priority: first in, first out."""

    tenant: str
    priority: int


class Reach(msgspec.Struct, frozen=True):
    """From where a claim reaches into a lane: ready jobs above a position, and due jobs after a time (µs since 1970),
    or none of those; of the due ones, `most_due` at most (None: any number)."""

    lane: Lane
    after: int = 0
    due: int | None = 0
    most_due: int | None = None


class Share(NamedTuple):
    """What a claim may take from lanes that stand together: from so many of them, so many jobs at most."""

    lanes: int
    most: int


class Rest(NamedTuple):
    """What only the messages dialect shows of a job. Times are in ms since 1970; `first_*`: the job whose
    id a dead letter has."""

    last_error: str | None
    expires_ms: int | None
    max_deliveries: int | None
    dlq_moved_ms: int | None
    first_topic_id: int | None
    first_seq: int | None


class Job(msgspec.Struct, frozen=True, gc=False):
    """A job as a claim hands it out. Times are in ms since 1970, by the database's clock."""

    seq: Seq
    lease: str  # 32 hex digits
    deliveries: int
    deadline_ms: int
    created_ms: int
    tag: str | None
    metadata: str | None  # the text of a JSON object
    payload: bytes
    content_type: str | None  # of the payload; None is application/json
    more: asyncpg.Record | None  # where the claim asked for it
    tenant: str
    priority: int
    # What few jobs have, as the claim's `rare` has it.
    original_topic: str | None = None
    original_seq: int | None = None
    original_deliveries: int | None = None
    key: str | None = None
    group: str | None = None
    crashes: int = 0  # deliveries before this one that ended by their deadline
    original_crashes: int | None = None  # of a dead letter

    @property
    def rest(self) -> Rest:
        """What the claim must have asked for."""
        assert self.more is not None
        return Rest(*self.more)


class HeldJob(msgspec.Struct, frozen=True):
    """A job and how its holder names itself: by node, by lease id, or by both. None matches any."""

    seq: Seq
    lease: LeaseId | None
    node: str | None


class Batch(msgspec.Struct):
    """Records to enqueue, column by column. A column may be shorter than `payloads`: what is missing is the default.

    Units: delays_ms and ttls_ms in ms, ttl 0 for none; run_ats aware; priorities smallint; metadata is the text of a
    JSON object. Of one tenant and key (1 to 256 characters), one job waits at a time: see producer.upsert. Of one
    tenant and group (1 to 128 characters), one job is out at a time. Of one tenant,
    group and dedupe id (1 to 256 characters), one job is enqueued in a while: see producer.enqueue_deduped.
    """

    payloads: list[bytes] = msgspec.field(default_factory=list)
    tags: list[str | None] = msgspec.field(default_factory=list)
    producers: list[str | None] = msgspec.field(default_factory=list)
    metadata: list[str | None] = msgspec.field(default_factory=list)
    tenants: list[str | None] = msgspec.field(default_factory=list)
    priorities: list[int | None] = msgspec.field(default_factory=list)
    delays_ms: list[int | None] = msgspec.field(default_factory=list)
    run_ats: list[datetime | None] = msgspec.field(default_factory=list)
    ttls_ms: list[int | None] = msgspec.field(default_factory=list)
    max_deliveries: list[int | None] = msgspec.field(default_factory=list)
    content_types: list[str | None] = msgspec.field(default_factory=list)
    keys: list[str | None] = msgspec.field(default_factory=list)
    groups: list[str | None] = msgspec.field(default_factory=list)
    dedupe_ids: list[str | None] = msgspec.field(default_factory=list)
    webhooks: list[str | None] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, payloads: list[bytes], **columns: list[Any]) -> Batch:
        """The records with these columns, but for those in which every record leaves the default: they are not sent."""
        return cls(payloads, **{name: column for name, column in columns.items() if column.count(None) < len(column)})

    def __len__(self) -> int:
        return len(self.payloads)

    def columns(self) -> list[list[Any]]:
        """The columns that every enqueue statement has, in the order of their parameters."""
        return [getattr(self, name) for name in _COLUMNS if name not in _OF_SOME]

    @property
    def placed_singly(self) -> bool:
        """Whether a record has a key or a group, so that where it goes depends on what is there; or a webhook, which
        is written once its job is."""
        return bool(self.keys or self.groups or self.webhooks)

    @property
    def ready_count(self) -> int:
        """How many records are to be had at once, as far as delays_ms says."""
        return len(self) - sum(1 for delay in self.delays_ms if delay)

    def lanes(self) -> set[Lane]:
        """The lanes that these records go into."""
        if not self.tenants and not self.priorities:
            return {Lane("", 0)}
        short = len(self) - len(self.priorities)
        priorities: list[int | None] = [*self.priorities, *([None] * short)]
        tenants: list[str | None] = [*self.tenants, *([None] * (len(self) - len(self.tenants)))]
        return {Lane(t or "", p or 0) for t, p in zip(tenants, priorities, strict=True)}

    def owners(self) -> set[str]:
        """Whose records these are."""
        if not self.tenants:
            return {""}
        owners = {tenant or "" for tenant in self.tenants}
        return owners if len(self.tenants) == len(self) else owners | {""}


_COLUMNS = list(Batch.__struct_fields__)
_OF_SOME = {"keys", "groups", "dedupe_ids", "webhooks"}


def merge(batches: Sequence[Batch]) -> Batch:
    """One batch with the records of all, in order. Copies; the parts stay as they are."""
    if len(batches) == 1:
        return batches[0]
    whole = Batch()
    for batch in batches:
        before = len(whole)
        for name in _COLUMNS:
            part: list[Any] = getattr(batch, name)
            if part:
                column: list[Any] = getattr(whole, name)
                column.extend([None] * (before - len(column)))
                column.extend(part)
    return whole


class Hideable(msgspec.Struct, frozen=True):
    """What shows something of jobs that may be hidden. SECRET: the fields that do, with what stands there instead."""

    SECRET: ClassVar[Mapping[str, Any]] = {}


LOW_BITS: Final = (1 << 62) - 1
_VARIANT: Final = 0b10 << 62


def id_of(topic_id: int, seq: int) -> str:
    """The id of a job, a message of that dialect; of a dead letter, that of the job that it was at first.

    It is a UUID of version 8 (RFC 9562) that says which job is meant, so that it needs no index:

        xxxxxxxx-0000-800s-8sss-ssssssssssss        x: the topic's id, 32 bits   s: the job's seq, 63 bits

    s has 1 bit of its own in the third group, 2 bits and 60 in the rest: what is left over is 0, and version and
    variant are where the RFC has them. Any other UUID is no id of a job.
    """
    low = f"{_VARIANT | seq & LOW_BITS:016x}"
    return f"{topic_id:08x}-0000-800{seq >> 62:x}-{low[:4]}-{low[4:]}"
