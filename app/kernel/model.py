"""The arguments and results of the verbs: topics, jobs, leases and batches of records."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import Enum
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
    """A pool or a connection. With a connection, the caller owns the transaction."""

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]: ...
    async def fetchrow(self, query: str, *args: Any) -> asyncpg.Record | None: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...
    async def execute(self, query: str, *args: Any) -> str: ...


class Session(Connection, Protocol):
    """A connection that can begin transactions, and savepoints in them."""

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...


class Topic(msgspec.Struct, frozen=True):
    """A topic as statements name it. `id` differs from that of an earlier topic of the same name."""

    name: str
    id: int
    sequence: int  # oid of the sequence of its seqs and positions


class Budget(msgspec.Struct, frozen=True):
    """How many deliveries a job gets. Without `ends` any number. With `ends` it is `max_deliveries`, 0 for no limit,
    unless the job has its own limit."""

    ends: bool
    max_deliveries: int


class Lane(msgspec.Struct, frozen=True):
    """The jobs of one tenant and priority: first in, first out."""

    tenant: str
    priority: int


class Reach(msgspec.Struct, frozen=True):
    """Where a claim starts in a lane: ready jobs above a position, and due jobs after a time in µs since 1970, or no
    due jobs. It takes `most_due` due jobs at most (None: any number)."""

    lane: Lane
    after: int = 0
    due: int | None = 0
    most_due: int | None = None


class Share(NamedTuple):
    """A group of consecutive lanes in a claim: how many lanes, and the most jobs that they give together."""

    lanes: int
    most: int


class Rest(NamedTuple):
    """The fields of a job that only the messages dialect shows. Times are in ms since 1970. `first_*`: the job whose id
    a dead letter has."""

    last_error: str | None
    expires_ms: int | None
    max_deliveries: int | None
    dlq_moved_ms: int | None
    first_topic_id: int | None
    first_seq: int | None


class Job(msgspec.Struct, frozen=True, gc=False):
    """A claimed job. Times are in ms since 1970, by the database's clock."""

    seq: Seq
    lease: str  # 32 hex digits
    deliveries: int
    deadline_ms: int
    created_ms: int
    tag: str | None
    metadata: str | None  # the text of a JSON object
    payload: bytes
    content_type: str | None  # of the payload; None is application/json
    more: asyncpg.Record | None  # the fields of `rest`, if the claim asked for them
    tenant: str
    priority: int
    # Fields that few jobs have, in the order of the claim's `rare`.
    original_topic: str | None = None
    original_seq: int | None = None
    original_deliveries: int | None = None
    key: str | None = None
    group: str | None = None
    crashes: int = 0  # earlier leases that ran out
    original_crashes: int | None = None  # the same of a dead letter, before it was one

    @property
    def rest(self) -> Rest:
        """The extra fields. The claim must have asked for them."""
        assert self.more is not None
        return Rest(*self.more)


class HeldJob(msgspec.Struct, frozen=True):
    """A job, and its holder's name for the lease: the node, the lease id, or both. None matches any. `late`: an ack
    also counts after the lease has ended, as long as nobody has claimed the job since."""

    seq: Seq
    lease: LeaseId | None
    node: str | None
    late: bool = False


class Batch(msgspec.Struct):
    """Records to enqueue, as columns. A column can be shorter than `payloads`: missing entries are the default.

    delays_ms and ttls_ms are in ms, a ttl of 0 is none; run_ats are aware; priorities are smallint; metadata is the
    text of a JSON object.
    A tenant and key (1 to 256 characters) have at most one waiting job: see producer.upsert. A tenant and group (1 to
    128 characters) have at most one running job. For a tenant, group and dedupe id (1 to 256 characters), one job is
    enqueued within a window: see producer.enqueue_deduped.
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
        """The records with these columns. Columns in which all entries are None are left out."""
        return cls(payloads, **{name: column for name, column in columns.items() if column.count(None) < len(column)})

    def __len__(self) -> int:
        return len(self.payloads)

    def columns(self) -> list[list[Any]]:
        """The columns of every enqueue statement, in the order of their parameters."""
        return [getattr(self, name) for name in _COLUMNS if name not in _OF_SOME]

    @property
    def is_placed_singly(self) -> bool:
        """Whether a record has a key or a group, so that its place depends on existing jobs, or a webhook, which is
        stored after its job."""
        return bool(self.keys or self.groups or self.webhooks)

    @property
    def ready_count(self) -> int:
        """How many records are ready at once, according to delays_ms."""
        return len(self) - sum(1 for delay in self.delays_ms if delay)

    def lanes(self) -> set[Lane]:
        if not self.tenants and not self.priorities:
            return {Lane("", 0)}
        short = len(self) - len(self.priorities)
        priorities: list[int | None] = [*self.priorities, *([None] * short)]
        tenants: list[str | None] = [*self.tenants, *([None] * (len(self) - len(self.tenants)))]
        return {Lane(t or "", p or 0) for t, p in zip(tenants, priorities, strict=True)}

    def owners(self) -> set[str]:
        """The tenants of these records."""
        if not self.tenants:
            return {""}
        owners = {tenant or "" for tenant in self.tenants}
        return owners if len(self.tenants) == len(self) else owners | {""}


_COLUMNS = list(Batch.__struct_fields__)
_OF_SOME = {"keys", "groups", "dedupe_ids", "webhooks"}


def merge(batches: Sequence[Batch]) -> Batch:
    """One batch with the records of all, in order. The parts stay unchanged."""
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
    """A struct with contents of jobs that may be hidden. SECRET: the fields to hide, with their replacements."""

    SECRET: ClassVar[Mapping[str, Any]] = {}


LOW_BITS: Final = (1 << 62) - 1
_VARIANT: Final = 0b10 << 62


def id_of(topic_id: int, seq: int) -> str:
    """The id of a job in the messages dialect. A dead letter has the id of the job that it was at first.

    It is a UUID of version 8 (RFC 9562) that contains the place of the job, so it needs no index:

        xxxxxxxx-0000-800s-8sss-ssssssssssss        x: the topic's id, 32 bits   s: the job's seq, 63 bits

    s has 1 bit in the third group, and 2 bits and 60 in the rest. The remaining bits are 0; version and variant are
    where the RFC has them. Any other UUID is not the id of a job.
    """
    low = f"{_VARIANT | seq & LOW_BITS:016x}"
    return f"{topic_id:08x}-0000-800{seq >> 62:x}-{low[:4]}-{low[4:]}"


class PayloadForm(Enum):
    """How to read the bytes of a payload. docs/semantics.md, section 18."""

    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"


def form_of(content_type: str | None) -> PayloadForm:
    """The form of payloads with this content type; None is JSON."""
    if content_type is None:
        return PayloadForm.JSON
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return PayloadForm.JSON
    return PayloadForm.TEXT if kind.startswith("text/") else PayloadForm.BYTES


def is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def as_json(payload: bytes, content_type: str | None) -> bytes:
    """A payload as JSON: JSON unchanged, text as a string, other bytes as {"$base64": …}."""
    form = form_of(content_type)
    if form is PayloadForm.JSON:
        return payload
    if form is PayloadForm.TEXT and is_utf8(payload):
        return msgspec.json.encode(payload.decode())
    return b'{"$base64":"%b"}' % base64.b64encode(payload)
