"""W3C trace context, as it travels in the metadata of jobs: `traceparent`, and `tracestate` where there is one. And
spans, where the application has set up OpenTelemetry. docs/operations/monitoring.md."""

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

Span = Any  # of OpenTelemetry's, which need not be installed


def context(traceparent: str | None) -> dict[str, str]:
    """What to put into metadata: what was given, else OpenTelemetry's current context, if that is installed and has
    one. Raises ValueError for a traceparent that is none."""
    carrier: dict[str, str] = {}
    if traceparent is not None:
        if not _TRACEPARENT.fullmatch(traceparent):
            raise ValueError(f"no traceparent: {traceparent!r:.100}")
        carrier["traceparent"] = traceparent
    else:
        inject(carrier)
    return carrier


def inject(carrier: dict[str, str]) -> None:
    """Add the current context, if there is one: to metadata, or to a request's headers."""
    if _propagator is not None:
        _propagator.inject(carrier)


def tracer() -> Any:
    """Of the provider that the application has set; None where it has set none."""
    if _propagator is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    return provider.get_tracer("holdfast", __version__)


def begin_process(tracer: Any, topic: str, body: Mapping[str, Any]) -> Span:
    """A span for the work on a job, the first one of a trace of its own. It links to whoever enqueued the job."""
    about = {
        **_about("process", "process", topic),
        "messaging.message.id": str(body["$seq"]),
        "holdfast.deliveries": body["deliveries"],
    }
    links = [trace.Link(producer) for producer in _producers(body.get("meta"))]
    return tracer.start_span(f"process {topic}", contexts.Context(), trace.SpanKind.CONSUMER, about, links)


def end_process(span: Span, verb: str, said: Any, error: BaseException | None) -> None:
    """`verb`: how the job is settled; `said`: why, where it is not done; `error`: what its handler raised, unless that
    was how it said so. Once it has ended, this does nothing."""
    if not span.is_recording():
        return
    span.set_attribute("holdfast.verdict", verb)
    if error is not None:
        span.record_exception(error)
    if verb in {"nack", "fail", "lost"}:
        span.set_attribute("error.type", verb if error is None else type(error).__qualname__)
        span.set_status(trace.StatusCode.ERROR, said if isinstance(said, str) else None)
    span.end()


@contextmanager
def current(span: Span | None) -> Iterator[None]:
    """A block in which this is the current span; it does not end with it."""
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
    """A block without a current span, for what goes on for ever: its claims are no part of what began it."""
    if _propagator is None:
        yield
        return
    token = contexts.attach(contexts.Context())
    try:
        yield
    finally:
        contexts.detach(token)


def carrier_of(span: Span | None) -> dict[str, str]:
    """A span's context, to be sent to another process; empty for none."""
    with current(span):
        carrier: dict[str, str] = {}
        if span is not None:
            inject(carrier)
        return carrier


@contextmanager
def within(carrier: Mapping[str, str]) -> Iterator[None]:
    """A block in which a span of another process is the current one."""
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
    """A block in which a span for a request that settles is current. That of one job is a child of its work; that of
    several links to each. Without any, nothing is traced."""
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
    """The context of whoever enqueued a job, of its metadata; nothing where that has none, or a malformed one."""
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
