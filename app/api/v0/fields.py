"""Checks of single fields, and the pieces that answers are put together from."""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from typing import Final

import msgspec
from asyncpg.pgproto.pgproto import UUID
from starlette.requests import Request
from starlette.responses import Response

from app.api.v0.bounds import MAX_NODE_BYTES, MAX_SEQS, seq_within
from app.errors import BatchTooLarge, InvalidRequest
from app.queue.model import Held, Job, LeaseId, Seq
from app.topics.config import BIGINT_MAX

_LEASE: Final = re.compile(r"lease_([0-9a-fA-F]{1,64})\Z")
_NO_LEASE: Final = UUID(bytes(16))  # never given out

encode: Final = msgspec.json.Encoder().encode


def topic_in(request: Request) -> str:
    """The topic that a request's path names. Raises InvalidRequest for a name with a slash, which servers decode."""
    raw: bytes = request.scope.get("raw_path", b"")
    if b"%" in raw and b"%2f" in raw.lower():
        raise InvalidRequest("A topic's name can't have a '/'.")
    name: str = request.path_params["topic"]
    return name


def check_text(value: str, field: str, most: int) -> str:
    """A text of at most so many bytes. Raises InvalidRequest."""
    if len(value) > most or (len(value) * 4 > most and len(value.encode()) > most):
        raise InvalidRequest(f"{field} is longer than {most} bytes.")
    return value


def check_node(node: str) -> str:
    """A worker's name. Raises InvalidRequest."""
    if not node:
        raise InvalidRequest("node must not be empty: it is who holds the lease.")
    return check_text(node, "node", MAX_NODE_BYTES)


def known_parameters(request: Request, names: Collection[str]) -> None:
    """Refuse a parameter of the query that the route doesn't have. Raises InvalidRequest."""
    for name in request.query_params:
        if name not in names:
            raise InvalidRequest(f"{name[:80]!r} is no parameter of this route; those are {', '.join(sorted(names))}.")


def flag(request: Request, name: str, *, default: bool) -> bool:
    """A parameter of the query that is true or false. Raises InvalidRequest: `?if_empty=1` must not delete."""
    given = request.query_params.get(name)
    if given is None:
        return default
    if given not in {"true", "false"}:
        raise InvalidRequest(f"{name} must be true or false.")
    return given == "true"


def leases_of(tokens: list[str] | None) -> list[LeaseId | None]:
    """Lease ids as the database knows them; "" is no fence. One that was never given out fits no lease.

    Raises InvalidRequest for what is no lease id at all.
    """
    return [_lease(token) for token in tokens or ()]


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


def _lease(token: str) -> LeaseId | None:
    if not token:
        return None
    match = _LEASE.match(token)
    if match is None:
        raise InvalidRequest(f"{token[:80]!r} is no lease id: those are lease_<hex>.")
    digits = match.group(1)
    return UUID(digits.zfill(32)) if len(digits) <= 32 else _NO_LEASE


def job_fields(topic: str, job: Job) -> bytes:
    """A leased job's fields, without the braces round them."""
    tag = b"" if job.tag is None else b'"$tag":%b,' % encode(job.tag)
    meta = meta_of(job)
    return (
        b'"$seq":%d,"lease_id":"lease_%b","deadline":%d,"$ts":%d,%b"deliveries":%d,"token":"%b:%d:lease_%b","data":%b%b'
        % (
            job.seq,
            lease := job.lease.encode(),
            job.deadline_ms,
            job.created_ms,
            tag,
            job.deliveries,
            topic.encode(),
            job.seq,
            lease,
            job.payload,
            b',"meta":%b' % meta if meta else b"",
        )
    )


def meta_of(job: Job) -> bytes:
    """A job's metadata as JSON, and where it came from if it was dead-lettered; nothing if it has neither."""
    if job.original_topic is None:
        return job.metadata.encode() if job.metadata else b""
    origin = encode(
        {
            "$dead_letter_from": job.original_topic,
            "$dead_letter_deliveries": job.original_deliveries,
            "$dead_letter_src_seq": job.original_seq,
        }
    )
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
