"""Spans of requests. docs/operations/monitoring.md lists them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.base import log
from app.http.bounds import MAX_META_BYTES, MAX_META_KEYS, MAX_RECORD_BYTES
from app.http.fields import encode

if TYPE_CHECKING:
    from app.base import traces
    from app.kernel.model import Batch, Job

_CALL: Final = "holdfast.traced"
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


class TracingMiddleware:
    """Middleware that ends each request's spans. Not installed while traces are off."""

    def __init__(self, app: ASGIApp, spans: traces.Spans) -> None:
        self._app, self._spans = app, spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call = scope[_CALL] = TracedCall(self._spans, scope["headers"])
        try:
            await self._app(scope, receive, send)
        except BaseException as error:
            call.end(type(error).__name__)
            raise
        call.end(scope.get(log.CODE))


class RequestSpans:
    """Receives reports from a request's route. This base class does nothing; it is used while traces are off."""

    def begin_send(self, topic: str, batch: Batch) -> int:
        """Begin the span of an enqueue. Records without a trace context get this one. Returns how many bytes that adds
        to their metadata."""
        return 0

    def set_seqs(self, seqs: Sequence[int]) -> None:
        """Report the seqs of the enqueued records."""

    def begin_claim(self, topic: str) -> None:
        """Report a claim. It gets a span if it finds jobs or fails."""

    def set_jobs(self, topic: str, jobs: Sequence[Job], began_ns: int | None = None) -> None:
        """Begin the span of a claim that found jobs. It links to the spans of their producers."""

    def push(self, topic: str, jobs: Sequence[Job], began_ns: int) -> None:
        """Make a span for jobs that a stream pushes."""

    def begin_settle(self, topic: str | None, verb: str, seqs: Sequence[int]) -> None:
        """Begin the span of a settlement. `topic` is None for jobs of several topics."""

    def set_count(self, count: int) -> None:
        """Report how many jobs were settled; the caller no longer held the others."""


_OFF: Final = RequestSpans()


class TracedCall(RequestSpans):
    """The spans of a traced request."""

    def __init__(self, spans: traces.Spans, headers: traces.Headers) -> None:
        self._spans = spans
        self._headers = headers
        self._began = time.time_ns()
        self._span: Any = None
        self._claimed: str | None = None  # the topic of a claim that has no span yet

    def begin_send(self, topic: str, batch: Batch) -> int:
        about: dict[str, str | int] = {
            "messaging.operation.name": "enqueue",
            "messaging.batch.message_count": len(batch),
        }
        about |= _tenant(batch.owners())
        self._span = self._begin("send", topic, about)
        return carry(batch, self._spans.carrier_of(self._span))

    def set_seqs(self, seqs: Sequence[int]) -> None:
        if self._span is not None and len(seqs) == 1:
            self._span.set_attribute("messaging.message.id", str(seqs[0]))

    def begin_claim(self, topic: str) -> None:
        self._claimed = topic

    def set_jobs(self, topic: str, jobs: Sequence[Job], began_ns: int | None = None) -> None:
        if not jobs:
            self._claimed = None
            return
        about: dict[str, str | int] = {"messaging.operation.name": "claim", "messaging.batch.message_count": len(jobs)}
        about |= _tenant({job.tenant for job in jobs})
        if len(jobs) == 1:
            about["messaging.message.id"] = str(jobs[0].seq)
        metadata = (job.metadata for job in jobs)
        self._claimed = None
        self._span = self._begin("receive", topic, about, metadata, began_ns)

    def push(self, topic: str, jobs: Sequence[Job], began_ns: int) -> None:
        self.set_jobs(topic, jobs, began_ns)
        self.end(None)

    def begin_settle(self, topic: str | None, verb: str, seqs: Sequence[int]) -> None:
        about: dict[str, str | int] = {
            "messaging.operation.name": verb,
            "messaging.batch.message_count": len(seqs),
        }
        if len(seqs) == 1:
            about["messaging.message.id"] = str(seqs[0])
        self._span = self._begin("settle", topic, about)

    def set_count(self, count: int) -> None:
        if self._span is not None:
            self._span.set_attribute("holdfast.settled_count", count)

    def end(self, error: str | None) -> None:
        """End the span of a request that was answered with an error's code, or with None."""
        if self._span is None and self._claimed is not None and error is not None:
            about: dict[str, str | int] = {"messaging.operation.name": "claim"}
            self._span = self._begin("receive", self._claimed, about)
        if self._span is not None:
            self._spans.end(self._span, error)
            self._span = None

    def _begin(
        self,
        operation: traces.Operation,
        topic: str | None,
        about: dict[str, str | int],
        metadata: Iterable[str | None] = (),
        began_ns: int | None = None,
    ) -> Any:
        return self._spans.begin(
            operation,
            topic,
            headers=self._headers,
            began_ns=began_ns or self._began,
            attributes=about,
            metadata=metadata,
        )


def spans_of(request: Request) -> RequestSpans:
    """The object to which a route reports its spans."""
    spans: RequestSpans = request.scope.get(_CALL, _OFF)
    return spans


def carry(batch: Batch, carrier: dict[str, str]) -> int:
    """Add a trace context to the metadata of records that have none. Returns how many bytes that added. Skips records
    whose metadata would become too large."""
    if not carrier:
        return 0
    alone = encode(carrier).decode()
    before = [*batch.metadata, *[None] * (len(batch) - len(batch.metadata))]
    after = [
        _carrying(text, alone, len(carrier), len(payload)) for text, payload in zip(before, batch.payloads, strict=True)
    ]
    batch.metadata = after
    return sum(map(_bytes, after)) - sum(map(_bytes, before))


def _carrying(text: str | None, alone: str, names: int, beside: int) -> str | None:
    if text is None:
        with_it = alone
    else:
        own = _object.decode(text)
        if "traceparent" in own or len(own) + names > MAX_META_KEYS:
            return text
        with_it = f"{alone[:-1]},{text.strip()[1:]}" if own else alone
    size = _bytes(with_it)
    return text if size > MAX_META_BYTES or size + beside > MAX_RECORD_BYTES else with_it


def _bytes(text: str | None) -> int:
    return 0 if text is None else len(text.encode())


def _tenant(names: set[str]) -> dict[str, str | int]:
    """The tenant's attribute, if all jobs have the same tenant."""
    return {"holdfast.tenant": next(iter(names))} if len(names) == 1 and "" not in names else {}
