"""Makes and exports spans. Imported only if HOLDFAST_TRACES is on. docs/operations/monitoring.md."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, Literal

import msgspec
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

MAX_LINKS: Final = 128  # of a span
MAX_STATE: Final = 512  # characters of a tracestate; a longer one is dropped, its traceparent is kept
MAX_PARENT: Final = 256  # characters of a traceparent; version 00 has 55

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_NOBODY: Final = Context()

# A request's operation on jobs, in the terms of OpenTelemetry's messaging conventions.
Operation = Literal["send", "receive", "settle"]
Headers = Iterable[tuple[bytes, bytes]]


class _Carrier(msgspec.Struct):
    """The producer's trace context in a job's metadata. The values may be anything."""

    traceparent: object = None
    tracestate: object = None


_carrier = msgspec.json.Decoder(_Carrier)


class Spans:
    """Makes spans and sends them in the background. OTEL_* variables set the endpoint, the sampling and the size of the
    buffer; spans beyond it are dropped."""

    def __init__(self, version: str, slot: int) -> None:
        attributes: dict[str, str] = {"service.version": version}
        given = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in given:
            attributes["service.name"] = "holdfast"
        if "service.instance.id=" not in given:
            attributes["service.instance.id"] = f"{socket.gethostname()}-{slot}-{os.getpid()}"
        # Don't log malformed headers of clients.
        logging.getLogger("opentelemetry.trace").setLevel(logging.ERROR)
        self._provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer: Tracer = self._provider.get_tracer("holdfast", version)

    def begin(
        self,
        operation: Operation,
        topic: str | None,
        *,
        headers: Headers,
        began_ns: int,
        attributes: Mapping[str, str | int],
        metadata: Iterable[str | None] = (),
    ) -> Span:
        """Begin a span at `began_ns`, in ns since 1970. Its parent comes from the headers. It links to the producers of
        jobs with these metadata, at most MAX_LINKS."""
        about: dict[str, str | int] = {"messaging.system": "holdfast", "messaging.operation.type": operation}
        if topic is not None:
            about["messaging.destination.name"] = topic
        return self._tracer.start_span(
            operation if topic is None else f"{operation} {topic}",
            _parent(headers),
            SpanKind.SERVER,
            {**about, **attributes},
            [Link(one) for one in _producers(metadata)],
            began_ns,
        )

    @staticmethod
    def carrier_of(span: Span) -> dict[str, str]:
        """The span's context as metadata of a job; empty if nothing is traced (OTEL_SDK_DISABLED)."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(span))
        return carrier

    @staticmethod
    def end(span: Span, error: str | None) -> None:
        """End a span. `error`: the code of the request's error, or the type of the exception."""
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(StatusCode.ERROR, error)
        span.end()

    async def stop(self, seconds: float) -> None:
        """Send the buffered spans for at most `seconds`. The others are lost."""
        # A daemon thread, because a collector may accept a connection and never answer.
        loop = asyncio.get_running_loop()
        sent = asyncio.Event()

        def send() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(sent.set)

        threading.Thread(target=send, name="holdfast-traces", daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(sent.wait(), seconds)


def _parent(headers: Headers) -> Context:
    """The caller's trace context. Empty if the headers are malformed or repeated."""
    parents, states = [], []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value.decode("latin-1"))
        elif name == b"tracestate":
            states.append(value.decode("latin-1"))
    return _extract(parents[0], ",".join(states)) if len(parents) == 1 else _NOBODY


def _producers(metadata: Iterable[str | None]) -> list[SpanContext]:
    """Span contexts of the producers of jobs with these metadata, without duplicates, in order."""
    found: dict[tuple[int, int], SpanContext] = {}
    for text in metadata:
        producer = None if text is None or "traceparent" not in text else _producer(text)
        if producer is not None:
            found.setdefault((producer.trace_id, producer.span_id), producer)
            if len(found) == MAX_LINKS:
                break
    return list(found.values())


def _producer(text: str) -> SpanContext | None:
    try:
        carrier = _carrier.decode(text)
    except msgspec.DecodeError:
        return None
    if not isinstance(carrier.traceparent, str):
        return None
    state = carrier.tracestate if isinstance(carrier.tracestate, str) else ""
    found = get_current_span(_extract(carrier.traceparent, state)).get_span_context()
    return found if found.is_valid else None


def _extract(parent: str, state: str) -> Context:
    if len(parent) > MAX_PARENT:
        return _NOBODY
    carrier = {"traceparent": parent}
    if state and len(state) <= MAX_STATE:
        carrier["tracestate"] = state
    return _PROPAGATOR.extract(carrier, _NOBODY)
