"""Limits of request fields. The checks and the OpenAPI document use the same numbers.

JSON Schema counts characters, the service counts bytes of UTF-8; the descriptions say so. Limits that would slow down
the decoder on hot routes are only described here, and checked where the field is used.
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

NO_NUL: Final = "^[^\\u0000]*$"  # PostgreSQL's text can't hold U+0000


def text(description: str, *, most: int, least: int = 0, pattern: str = NO_NUL) -> Meta:
    """A text of `least` to `most` bytes."""
    bounds = {"maxLength": most, "minLength": least, "pattern": pattern}
    return Meta(description=f"{description} At most {most} bytes of UTF-8.", extra_json_schema=bounds)


def about(description: str, default: Any = None, **schema: Any) -> Meta:
    """A field's description, its default (for absent or null) and other keywords of its schema."""
    return Meta(
        description=description, extra_json_schema=schema if default is None else {"x-default": default, **schema}
    )


def seq_within(seq: int) -> int:
    """The seq, limited to the largest possible one."""
    return min(seq, BIGINT_MAX)


DATUM: Final = {  # a condition on the payload in a filter of jobs
    "maxLength": MAX_PATH + 1 + MAX_VALUE,
    "pattern": "^([^=\\\\.\\u0000]|\\\\[^\\u0000])+(\\.([^=\\\\.\\u0000]|\\\\[^\\u0000])+)*=[^\\u0000]*$",
}

CLUSTER_PATTERN: Final = "^[0-9a-f]{16}$"

Count = Annotated[int, Meta(ge=0)]
Seq = Annotated[int, Meta(ge=0)]  # beyond PostgreSQL's bigint it means "after the end"
Wait = Annotated[int, Meta(ge=0, le=30_000)]

Holder = Annotated[str, text("The worker that holds the leases.", most=MAX_NODE_BYTES, least=1)]
Producer = Annotated[str, text("The producer.", most=MAX_NODE_BYTES)]
Tag = Annotated[str, text("Returned as $tag.", most=MAX_TAG_BYTES)]
BatchKey = Annotated[
    str,
    text(
        "A batch is not written again if its key was used on this topic within idempotency_window_ms. The header "
        "Idempotency-Key does the same; the body takes precedence.",
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
        "Within the topic's dedupe_window_ms, a tenant's group enqueues one record with this id. Duplicates are "
        "dropped and answered with the first one's job, even after it has completed. In topics whose name ends in "
        ".fifo it defaults to the payload's SHA-256."
    ),
]
ClusterId = Annotated[str, Meta(pattern=CLUSTER_PATTERN, description="A cluster of failures, with jobs in any state.")]
MAX_NAMED: Final = 100  # tenants of one claim
Tenants = Annotated[
    Annotated[list[Tenant], Meta(min_length=1, max_length=MAX_NAMED)] | None,
    about("Only jobs of these tenants. Absent: jobs of all tenants, shared fairly."),
]
MAX_TAGS: Final = 32  # of one claim
Tags = Annotated[
    Annotated[list[Annotated[str, text("A tag.", most=MAX_TAG_BYTES)]], Meta(min_length=1, max_length=MAX_TAGS)] | None,
    about("Only jobs with one of these tags. Absent: all jobs."),
]
Seqs = Annotated[list[Seq], about("The jobs.", maxItems=MAX_SEQS)]
LeaseIds = Annotated[
    list[Annotated[str, Meta(extra_json_schema={"pattern": "^(lease_[0-9a-fA-F]{1,64})?$"})]],
    about("One for each seq, or none at all. An empty string disables the fence for that seq.", maxItems=MAX_SEQS),
]
Errors = Annotated[
    list[Annotated[str, text("Kept as the job's last_error.", most=MAX_ERROR_BYTES)] | None],
    about("One for each seq; an entry or the whole list may be null.", maxItems=MAX_SEQS),
]
LeaseMs = Annotated[Count, about("Length of the leases in ms, clamped to 100 to 86400000.")]
