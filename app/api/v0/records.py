"""POST /v0/topics/:topic: records into a queue."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct
from app.api.body import check_depth, read_json
from app.api.openapi import TOPIC, operation, query
from app.api.v0.bodies import MAX_RECORDS, AppendAnswer, AppendBody
from app.api.v0.fields import MAX_NODE_BYTES, answer, check_text, encode, fsync_since, topic_in
from app.api.v0.topics import configure
from app.edge.context import Context, context_of
from app.errors import BatchTooLarge, InvalidRequest, RecordTooLarge, TopicNotFound
from app.keys import Scope
from app.queue.model import Batch
from app.topics.config import Policy, check_name

router = direct.router("records")

MAX_RECORD_BYTES: Final = 1024 * 1024
MAX_META_BYTES: Final = 16 * 1024
MAX_META_KEYS: Final = 64
MAX_TAG_BYTES: Final = 256

_body = msgspec.json.Decoder(AppendBody)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


@router.post(
    "/v0/topics/{topic}",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, query("return_seqs", "false leaves seqs out of the answer.", {"type": "boolean"})],
        body=AppendBody,
        answers={200: AppendAnswer, 201: AppendAnswer},
        errors=[400, 401, 403, 404, 409, 413, 415, 503],
    ),
)
async def append(request: Request) -> Response:
    """Put records into a queue, each a job; all of them or none."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.WRITE, name)
    body = await read_json(request, _body, context.settings.max_body_bytes)
    check_name(name)
    batch, size = columns_of(body)
    if "idempotency-key" in request.headers:
        raise InvalidRequest("Idempotency keys are not supported yet.")
    policy, created = await _policy(request, context, name, body)
    sent = time.perf_counter()
    seqs = await context.engine.enqueues.enqueue(policy, batch, size)
    timings = fsync_since(sent) if policy.config.durable else b""
    plain = not request.scope["query_string"] or request.query_params.get("return_seqs") != "false"
    shown = b',"seqs":%b' % encode(seqs) if plain else b""
    fields = b'"topic":"%b","first_seq":%d,"last_seq":%d%b,"head_seq":%d,"count":%d,"created":%b,"deduped":false' % (
        name.encode(),
        seqs[0],
        seqs[-1],
        shown,
        seqs[-1],
        len(seqs),
        b"true" if created else b"false",
    )
    return answer(fields, began, timings, 201 if created else 200)


async def _policy(request: Request, context: Context, name: str, body: AppendBody) -> tuple[Policy, bool]:
    """The queue to write to, made now if it is absent and the body says how; and whether it was."""
    try:
        return await context.policies.queue(name), False
    except TopicNotFound:
        if body.config is None or body.config.type != "queue" or body.create is False:
            raise
    context.access.check(request, Scope.ADMIN, name)
    _, created = await configure(request, context, name, body.config)
    return await context.policies.queue(name), created


def columns_of(body: AppendBody) -> tuple[Batch, int]:
    """Check the records and turn them into columns; and the bytes of their data and metadata.

    Raises InvalidRequest, BatchTooLarge, RecordTooLarge; names the record by its place, from 0.
    """
    records = body.records
    if not records:
        raise InvalidRequest("records must hold at least one record.")
    if len(records) > MAX_RECORDS:
        raise BatchTooLarge(f"At most {MAX_RECORDS} records a call.", {"records": len(records), "max": MAX_RECORDS})
    if body.node is not None:
        check_text(body.node, "node", MAX_NODE_BYTES)
    payloads = [bytes(record.data) for record in records]
    metadata = [_metadata(i, record.meta) for i, record in enumerate(records)]
    size = 0
    for i, payload in enumerate(payloads):
        text = metadata[i]
        weight = len(payload) + (0 if text is None else len(text.encode()))
        if weight > MAX_RECORD_BYTES:
            raise RecordTooLarge(
                f"Record {i}: data and meta are {weight} bytes together; {MAX_RECORD_BYTES} are the most.",
                {"record": i, "bytes": weight, "max_bytes": MAX_RECORD_BYTES},
            )
        check_depth(payload)
        size += weight
    producers = [
        body.node if record.node is None else check_text(record.node, "node", MAX_NODE_BYTES) for record in records
    ]
    return Batch(
        payloads=payloads,
        tags=_unless_default([record.tag and check_text(record.tag, "tag", MAX_TAG_BYTES) for record in records]),
        producers=_unless_default(producers),
        metadata=_unless_default(metadata),
        priorities=_unless_default([record.priority for record in records]),
        delays_ms=_unless_default([record.delay_ms for record in records]),
        run_ats=_unless_default(
            [None if record.run_at is None else _time(i, record.run_at) for i, record in enumerate(records)]
        ),
        ttls_ms=_unless_default([record.ttl_ms for record in records]),
        max_deliveries=_unless_default([record.max_deliveries for record in records]),
    ), size


def _unless_default(column: list[Any]) -> list[Any]:
    """The column, or none at all where every record leaves it to its default: it is not sent then."""
    return [] if column.count(None) == len(column) else column


def _metadata(place: int, raw: msgspec.Raw) -> str | None:
    text = bytes(raw)
    if text in {b"", b"null"}:
        return None
    if len(text) > MAX_META_BYTES:
        raise InvalidRequest(f"Record {place}: meta is longer than {MAX_META_BYTES} bytes.")
    if not text.startswith(b"{"):
        raise InvalidRequest(f"Record {place}: meta must be an object.")
    if len(_object.decode(text)) > MAX_META_KEYS:
        raise InvalidRequest(f"Record {place}: meta has more than {MAX_META_KEYS} keys.")
    check_depth(text)
    return text.decode()


def _time(place: int, text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise ValueError("it has no time zone")
        return time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"Record {place}: run_at must be an RFC 3339 time with its offset, such as 2026-01-31T09:00:00Z."
        ) from None
