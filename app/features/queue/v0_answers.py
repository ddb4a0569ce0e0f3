"""Parts of answers to workers: leased jobs, and counts of the queue."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from app.base.keys import Key
from app.http import sight
from app.http.context import Context
from app.http.fields import encode, flag, history
from app.http.openapi import query
from app.kernel.model import Job, as_json
from app.kernel.topics.policy import Policy

COUNTS: Final = query(
    "return_counts",
    "false: leave out the counts of ready and in-flight jobs, which saves a statement.",
    {"type": "boolean", "default": True},
)


def wants_counts(request: Request) -> bool:
    """Whether the answer must have the queue's counts, which make it slower. Raises InvalidRequest."""
    given: bytes = request.scope["query_string"]
    # The common cases need no parsing.
    return not given or (given != b"return_counts=false" and flag(request, "return_counts", default=True))


async def count_ready(context: Context, key: Key | None, policy: Policy) -> bytes:
    """Count ready jobs, as JSON of an answer. Raises Unavailable."""
    return b',"ready":%d' % (await sight.count_jobs(context, key, policy))[0]


async def count_both(context: Context, key: Key | None, policy: Policy) -> bytes:
    """Count ready and in-flight jobs, as JSON of an answer. Raises Unavailable."""
    return b',"ready":%d,"in_flight":%d' % await sight.count_jobs(context, key, policy)


def job_fields(topic: str, job: Job) -> bytes:
    """Encode a leased job's fields as JSON without the braces."""
    tag = b"" if job.tag is None else b'"$tag":%b,' % encode(job.tag)
    key = b"" if job.key is None else b'"key":%b,' % encode(job.key)
    group = b"" if job.group is None else b'"group":%b,' % encode(job.group)
    kind = b"" if job.content_type is None else b'"content_type":%b,' % encode(job.content_type)
    tenant = b'"tenant":%b,' % encode(job.tenant) if job.tenant else b""
    meta = meta_of(job)
    return (
        b'"$seq":%d,"lease_id":"lease_%b","deadline":%d,"$ts":%d,%b%b%b%b%b"deliveries":%d,%b"token":"%b:%d:lease_%b","data":%b%b'
        % (
            job.seq,
            lease := job.lease.encode(),
            job.deadline_ms,
            job.created_ms,
            tag,
            key,
            group,
            tenant,
            kind,
            job.deliveries,
            history(job.deliveries - 1, job.crashes, job.original_crashes),
            topic.encode(),
            job.seq,
            lease,
            job.payload if job.content_type is None else as_json(job.payload, job.content_type),
            b',"meta":%b' % meta if meta else b"",
        )
    )


def meta_of(job: Job) -> bytes:
    """Encode a job's metadata, with its origin if it is a dead letter. Empty if it has neither."""
    if job.original_topic is None:
        return job.metadata.encode() if job.metadata else b""
    provenance = {
        "$dead_letter_from": job.original_topic,
        "$dead_letter_deliveries": str(job.original_deliveries),
        "$dead_letter_src_seq": str(job.original_seq),
    }
    if job.original_crashes:
        provenance["$dead_letter_crashes"] = str(job.original_crashes)
    origin = encode(provenance)
    own = (job.metadata or "").strip()[1:-1].strip()
    return b"{%b,%b" % (own.encode(), origin[1:]) if own else origin
