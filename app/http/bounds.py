"""Bounds of what routes take, once for the checks and once, from the same numbers, for the OpenAPI document.

JSON Schema counts characters where we count bytes of UTF-8: a description says so. What a decoder would check at a cost
on the hot routes is only described here, and checked where the field is used.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from app.kernel.jobs import MAX_PATH, MAX_VALUE
from app.kernel.model import MAX_GROUP, MAX_JOB_KEY, MAX_TAG_BYTES
from app.kernel.topics.settings import BIGINT_MAX, Tenant

MAX_RECORDS: Final = 10_000
MAX_SEQS: Final = 1_000
MAX_NODES: Final = 1_000
MAX_NODE_BYTES: Final = 128
MAX_KEY_BYTES: Final = 256
MAX_ERROR_BYTES: Final = 8 * 1024
MAX_META_KEYS: Final = 64
MAX_META_BYTES: Final = 16 * 1024
MAX_RECORD_BYTES: Final = 1024 * 1024  # data and metadata of a job or record
DAY_MS: Final = 86_400_000

NO_NUL: Final = "^[^\\u0000]*$"  # PostgreSQL's text can't hold it


def text(description: str, *, most: int, least: int = 0, pattern: str = NO_NUL) -> Meta:
    """A text of at most so many bytes."""
    bounds = {"maxLength": most, "minLength": least, "pattern": pattern}
    return Meta(description=f"{description} At most {most} bytes of UTF-8.", extra_json_schema=bounds)


def about(description: str, default: Any = None, **schema: Any) -> Meta:
    """What a field is for, what its absence (or null) means, and what else its schema says."""
    shown = schema if default is None else {"x-default": default, **schema}
    return Meta(description=description, extra_json_schema=shown)


def seq_within(seq: int) -> int:
    """The seq, or the last one that there can be."""
    return min(seq, BIGINT_MAX)


DATUM: Final = {  # of a filter of jobs: what is in a payload
    "maxLength": MAX_PATH + 1 + MAX_VALUE,
    "pattern": "^([^=\\\\.\\u0000]|\\\\[^\\u0000])+(\\.([^=\\\\.\\u0000]|\\\\[^\\u0000])+)*=[^\\u0000]*$",
}

CLUSTER_PATTERN: Final = "^[0-9a-f]{16}$"

Count = Annotated[int, Meta(ge=0)]
Seq = Annotated[int, Meta(ge=0)]  # above what PostgreSQL can count to it means "beyond the end"
Wait = Annotated[int, Meta(ge=0, le=30_000)]

Holder = Annotated[str, text("Who holds the leases, or is to hold them.", most=MAX_NODE_BYTES, least=1)]
Producer = Annotated[str, text("Who produced it.", most=MAX_NODE_BYTES)]
Tag = Annotated[str, text("Comes back as $tag.", most=MAX_TAG_BYTES)]
BatchKey = Annotated[
    str,
    text(
        "A batch with a key that was used on this topic within its idempotency_window_ms is not written again. The "
        "header Idempotency-Key does the same; the body goes first.",
        most=MAX_KEY_BYTES,
        least=1,
    ),
]
Key = Annotated[str, Meta(min_length=1, max_length=MAX_JOB_KEY, extra_json_schema={"pattern": NO_NUL})]
Priority = Annotated[int, Meta(ge=-32_768, le=32_767)]
Group = Annotated[str, Meta(min_length=1, max_length=MAX_GROUP, extra_json_schema={"pattern": NO_NUL})]
DedupeId = Annotated[
    Key,
    about(
        "Of a tenant's and group's records with this id one is enqueued within the topic's dedupe_window_ms; others "
        "are dropped, and answered with its job, even after that is done. In topics whose name ends in .fifo the "
        "payload's SHA-256 if absent."
    ),
]
ClusterId = Annotated[
    str, Meta(pattern=CLUSTER_PATTERN, description="A cluster of failures, whatever its jobs' states are.")
]
MAX_NAMED: Final = 100  # tenants of one claim
Tenants = Annotated[
    Annotated[list[Tenant], Meta(min_length=1, max_length=MAX_NAMED)] | None,
    about("Only jobs of these tenants. Absent: of all, shared fairly."),
]
MAX_TAGS: Final = 32  # of one claim
Tags = Annotated[
    Annotated[list[Annotated[str, text("A tag.", most=MAX_TAG_BYTES)]], Meta(min_length=1, max_length=MAX_TAGS)] | None,
    about("Only jobs with one of these tags. Absent: all jobs."),
]
Seqs = Annotated[list[Seq], about("The jobs.", maxItems=MAX_SEQS)]
LeaseIds = Annotated[
    list[Annotated[str, Meta(extra_json_schema={"pattern": "^(lease_[0-9a-fA-F]{1,64})?$"})]],
    about("One for each seq, or none at all. An empty text is no fence for that seq.", maxItems=MAX_SEQS),
]
Errors = Annotated[
    list[Annotated[str, text("Kept as the job's last_error.", most=MAX_ERROR_BYTES)] | None],
    about("One for each seq, or null for all.", maxItems=MAX_SEQS),
]
LeaseMs = Annotated[Count, about("Length of the leases in ms, clamped to 100 to 86400000.")]
