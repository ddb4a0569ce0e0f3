"""What holders name, and the pieces that the v0 dialect's answers are put together from."""

from __future__ import annotations

import time

from starlette.responses import Response

from app.errors import BatchTooLarge, InvalidRequest
from app.http.bounds import MAX_NODE_BYTES, MAX_SEQS, seq_within
from app.http.fields import check_text, encode, history, lease_of
from app.kernel.forms import as_json
from app.kernel.model import Held, Job, LeaseId, Seq
from app.kernel.topics.settings import BIGINT_MAX


def check_node(node: str) -> str:
    """A worker's name. Raises InvalidRequest."""
    if not node:
        raise InvalidRequest("node must not be empty: it is who holds the lease.")
    return check_text(node, "node", MAX_NODE_BYTES)


def leases_of(tokens: list[str] | None) -> list[LeaseId | None]:
    """Lease ids as the database knows them; "" is no fence. One that was never given out fits no lease.

    Raises InvalidRequest for what is no lease id at all.
    """
    return [lease_of(token) for token in tokens or ()]


def held_by(node: str, seqs: list[int], leases: list[LeaseId | None]) -> list[Held]:
    """What a holder says it holds. Raises InvalidRequest, BatchTooLarge."""
    check_node(node)
    if len(seqs) > MAX_SEQS:
        raise BatchTooLarge(f"At most {MAX_SEQS} seqs a call.", {"seqs": len(seqs), "max": MAX_SEQS})
    if seqs and max(seqs) > BIGINT_MAX:
        seqs = [seq_within(seq) for seq in seqs]
    if not leases:
        return [Held(Seq(seq), None, node) for seq in seqs]
    if len(leases) != len(seqs):
        raise InvalidRequest(f"lease_ids has {len(leases)} entries for {len(seqs)} seqs.")
    return [Held(Seq(seq), lease, node) for seq, lease in zip(seqs, leases, strict=True)]


def job_fields(topic: str, job: Job) -> bytes:
    """A leased job's fields, without the braces round them."""
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
    """A job's metadata as JSON, and where it came from if it was dead-lettered; nothing if it has neither."""
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


def answer(body: bytes, began: float, timings: bytes = b"", status: int = 200) -> Response:
    """An answer whose last field is the performance block. `body` is its other fields, without braces."""
    total = (time.perf_counter() - began) * 1000
    content = b'{%b,"performance":{"server_total_ms":%.3f%b}}' % (body, total, timings)
    return Response(content, status, media_type="application/json")


def fsync_since(began: float) -> bytes:
    """The timing of a durable commit that was asked for at `began`."""
    return b',"fsync_ms":%.3f' % ((time.perf_counter() - began) * 1000)
