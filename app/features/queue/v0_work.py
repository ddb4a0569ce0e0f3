"""GET /v0/topics/:topic/work: jobs pushed as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Send

from app.errors import InvalidRequest, Unavailable
from app.features.queue.v0_bodies import JobFrame
from app.features.queue.v0_leases import claimer_of, job_fields
from app.http import sight
from app.http.bounds import MAX_NAMED, MAX_NODE_BYTES, NO_NUL
from app.http.fields import check_node, check_tenants, encode
from app.http.openapi import events, query
from app.http.route import Call
from app.http.spans import RequestSpans, spans_of
from app.http.sse import (
    ADVICE_SECONDS,
    HEARTBEAT,
    ErrorFrame,
    EventStream,
    close,
    error_frame,
    must_accept_events,
    one_line,
    push,
)
from app.kernel.claim.streams import Stream, Streams
from app.kernel.model import Job
from app.kernel.topics.policy import check_name

HEARTBEAT_SECONDS: Final = 15.0
FRAMES: Final[Mapping[str, type[msgspec.Struct]]] = {"job": JobFrame, "error": ErrorFrame}  # by event name


_WHOLE = {"type": "integer", "minimum": 0}
_FRAMES = """retry: 2000

: hb

id: 2
event: job
data: {"topic":"mail","$seq":2,"lease_id":"lease_f1f7a4489402c569c2ac7aac8f2607b2","deadline":1795225663015,\
"$ts":1795225632925,"deliveries":2,"token":"mail:2:lease_f1f7a4489402c569c2ac7aac8f2607b2","data":"two"}

event: error
data: {"code":503,"error":"shutting_down","message":"The service is stopping. Connect again.","topic":"mail"}

"""
PARAMETERS: Final = (
    query(
        "node",
        f"The worker's name, the holder of the leases. At most {MAX_NODE_BYTES} bytes of UTF-8.",
        {"type": "string", "minLength": 1, "maxLength": MAX_NODE_BYTES, "pattern": NO_NUL},
        required=True,
    ),
    query("max", "Most jobs in flight on this stream, clamped to 1 to 1000.", {**_WHOLE, "default": 1}),
    query("lease_ms", "Length of the leases in ms, clamped to 100 to 86400000. Absent: the topic's.", _WHOLE),
    query(
        "tenants",
        f"Only jobs of these tenants, 1 to {MAX_NAMED}. Repeat the parameter for each. Absent: all tenants.",
        {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": NO_NUL}},
    ),
    query("token", "The API key, for browsers' EventSource only.", {"type": "string"}),
)


ANSWER: Final = events(
    "First `retry: 2000` and a comment. Then an event `job` for each job, with a claimed job's fields and `topic`. "
    "A comment follows 15 s without another frame. After an event `error` with code 429, the stream goes on. An "
    "`error` with 401 (the key is not valid any more), 409 (the topic was deleted or created again) or 503 (the "
    "service is stopping) is the last event.",
    _FRAMES,
    FRAMES,
)


async def work(call: Call) -> Response:
    """Stream jobs as server-sent events. Up to `max` jobs are leased to this connection at a time; more follow as jobs
    are settled. When the connection ends, unsettled jobs are released at once."""
    request, context, name, key = call.request, call.context, call.topic, call.key
    must_accept_events(request.headers.get("accept"))
    check_name(name)
    given = request.query_params
    node = check_node(given.get("node", ""))
    if "\0" in node:
        raise InvalidRequest("node must not contain a NUL character.")
    named = check_tenants(given.getlist("tenants")) if "tenants" in given else None
    tenants = sight.tenants_for(key, named)
    most, lease_ms = _whole(given.get("max"), "max"), _whole(given.get("lease_ms"), "lease_ms")
    policy = await context.policies.queue(name)
    context.engine.reads.note(policy.topic.id)
    context.quota.take_stream(request.scope, key)
    streams = context.engine.streams
    stream = streams.open(claimer_of(policy, node, most, lease_ms, tenants))
    return WorkStream(streams, stream, context.access.watch(key, stream.end), spans_of(request))


class WorkStream(EventStream):
    """Sends a stream's jobs until the client disconnects or the stream must end. Then releases unsettled jobs."""

    def __init__(self, streams: Streams, stream: Stream, left: Callable[[], None], spans: RequestSpans) -> None:
        super().__init__()
        self._streams = streams
        self._stream = stream
        self._left = left
        self._spans = spans

    async def _release(self) -> None:
        self._left()
        await self._streams.close(self._stream)

    async def _serve(self, send: Send, leaving: asyncio.Future[None]) -> None:
        stream, topic = self._stream, self._stream.claimer.policy.topic.name
        sent = self._streams.sent
        sent["heartbeat"].add()
        quiet_since = time.monotonic()
        coming = None
        try:
            while not leaving.done():
                if coming is None:
                    coming = asyncio.ensure_future(self._streams.next(stream))
                patience = quiet_since + HEARTBEAT_SECONDS - time.monotonic()
                events: list[asyncio.Future[Any]] = [coming, leaving, stream.ending]
                await asyncio.wait(events, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if stream.ending.done():
                    error = stream.ending.result()
                    sent["error"].add()
                    await close(send, error_frame(error, topic=topic))
                    return
                if coming.done():
                    finished, coming = coming, None
                    try:
                        jobs = finished.result()
                    except Unavailable as error:  # the stream goes on
                        await push(send, error_frame(error, 429, topic=topic))
                        sent["error"].add()
                        await asyncio.wait(events[1:], timeout=ADVICE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                        continue
                    began = time.time_ns()
                    await push(send, *(_frame(topic, job) for job in jobs))
                    self._spans.push(topic, jobs, began)
                    sent["job"].add(len(jobs))
                    del finished, jobs  # free the payloads, as the next job may be hours away
                    quiet_since = time.monotonic()
                elif time.monotonic() - quiet_since >= HEARTBEAT_SECONDS:
                    await push(send, HEARTBEAT)
                    sent["heartbeat"].add()
                    quiet_since = time.monotonic()
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)


def _frame(topic: str, job: Job) -> bytes:
    fields = one_line(job_fields(topic, job))
    return b'id: %d\nevent: job\ndata: {"topic":%b,%b}\n\n' % (job.seq, encode(topic), fields)


def _whole(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 1000):
        raise InvalidRequest(f"{field} must be a whole number, 0 or more.")
    return int(text)
