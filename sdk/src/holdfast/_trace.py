"""W3C trace context in the metadata of jobs (`traceparent` and `tracestate`), and spans if the application has set up
OpenTelemetry. docs/operations/monitoring.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from holdfast._version import __version__

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _propagator = None
else:
    _propagator = TraceContextTextMapPropagator()

MAX_LINKS: Final = 128
MAX_STATE: Final = 512  # characters
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

Span = Any  # OpenTelemetry's, which may not be installed


def context(traceparent: str | None) -> dict[str, str]:
    """The trace context for a job's metadata: the given one, else OpenTelemetry's current one, if any. Raises
    ValueError for a malformed traceparent."""
    carrier: dict[str, str] = {}
    if traceparent is not None:
        if not _TRACEPARENT.fullmatch(traceparent):
            raise ValueError(f"not a valid traceparent: {traceparent!r:.100}")
        carrier["traceparent"] = traceparent
    else:
        inject(carrier)
    return carrier


def inject(carrier: dict[str, str]) -> None:
    """Add the current trace context, if any, to metadata or to a request's headers."""
    if _propagator is not None:
        _propagator.inject(carrier)


def tracer() -> Any:
    """A tracer of the application's provider; None if it has set none."""
    if _propagator is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    return provider.get_tracer("holdfast", __version__)


def begin_process(tracer: Any, topic: str, body: Mapping[str, Any]) -> Span:
    """Begin a new trace with a span for running a job. It links to the producer's span."""
    about = {
        **_about("process", "process", topic),
        "messaging.message.id": str(body["$seq"]),
        "holdfast.deliveries": body["deliveries"],
    }
    links = [trace.Link(producer) for producer in _producers(body.get("meta"))]
    return tracer.start_span(f"process {topic}", contexts.Context(), trace.SpanKind.CONSUMER, about, links)


def end_process(span: Span, verb: str, detail: Any, error: BaseException | None) -> None:
    """End a span. Has no effect on a span that has ended.

    - verb: how the job is settled.
    - detail: the reason, if the job did not succeed.
    - error: the handler's exception, unless it was a verdict.
    """
    if not span.is_recording():
        return
    span.set_attribute("holdfast.verdict", verb)
    if error is not None:
        span.record_exception(error)
    if verb in {"nack", "fail", "lost"}:
        span.set_attribute("error.type", verb if error is None else type(error).__qualname__)
        span.set_status(trace.StatusCode.ERROR, detail if isinstance(detail, str) else None)
    span.end()


@contextmanager
def current(span: Span | None) -> Iterator[None]:
    """Make a span the current one in a block, without ending it."""
    if span is None:
        yield
        return
    token = contexts.attach(trace.set_span_in_context(span))
    try:
        yield
    finally:
        contexts.detach(token)


@contextmanager
def apart() -> Iterator[None]:
    """A block without a current span, for background work that outlives its caller."""
    if _propagator is None:
        yield
        return
    token = contexts.attach(contexts.Context())
    try:
        yield
    finally:
        contexts.detach(token)


def carrier_of(span: Span | None) -> dict[str, str]:
    """A span's context, to send to another process; empty for None."""
    with current(span):
        carrier: dict[str, str] = {}
        if span is not None:
            inject(carrier)
        return carrier


@contextmanager
def within(carrier: Mapping[str, str]) -> Iterator[None]:
    """Make a span of another process the current one in a block."""
    if not carrier or _propagator is None:
        yield
        return
    token = contexts.attach(_propagator.extract(dict(carrier)))
    try:
        yield
    finally:
        contexts.detach(token)


@contextmanager
def settling(topic: str, verb: str, spans: Sequence[Span]) -> Iterator[None]:
    """A block with a span for a settlement. For one job it is a child of the job's span; for several it links to each.
    Without spans, nothing is traced."""
    made_by = tracer() if spans else None
    if made_by is None:
        yield
        return
    alone = len(spans) == 1
    with made_by.start_as_current_span(
        f"settle {topic}",
        trace.set_span_in_context(spans[0], contexts.Context()) if alone else contexts.Context(),
        trace.SpanKind.CLIENT,
        {**_about("settle", verb, topic), "messaging.batch.message_count": len(spans)},
        [] if alone else [trace.Link(span.get_span_context()) for span in spans[:MAX_LINKS]],
    ):
        yield


def _about(kind: str, operation: str, topic: str) -> dict[str, Any]:
    return {
        "messaging.system": "holdfast",
        "messaging.operation.type": kind,
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
    }


def _producers(meta: Any) -> Iterator[Any]:
    """The producer's span context in a job's metadata, if valid."""
    assert _propagator is not None
    parent = meta.get("traceparent") if isinstance(meta, Mapping) else None
    if not isinstance(parent, str) or not _TRACEPARENT.fullmatch(parent):
        return
    state = meta.get("tracestate")
    carrier = {"traceparent": parent}
    if isinstance(state, str) and 0 < len(state) <= MAX_STATE:
        carrier["tracestate"] = state
    found = trace.get_current_span(_propagator.extract(carrier, contexts.Context())).get_span_context()
    if found.is_valid:
        yield found
