"""Workers of an application that has set up OpenTelemetry, on a service that sends traces as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import AsyncTopic, Dead, Queue, Retry, _trace
from holdfast._transport import Account
from holdfast._wire import Request
from holdfast._worker.child import Order, perform
from tests.sdk.workers import fact, working
from tests.traces.collector import Collector

ACCOUNT = Account("http://127.0.0.1:1", None, "w")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the application has traced. A process sets its provider once and for all; here it goes with the test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    return exporter


@pytest.fixture
async def handlers(traced: str) -> AsyncIterator[Queue]:
    async with Queue(traced) as handlers:
        yield handlers


@pytest.fixture
async def queue(handlers: Queue, topic: str) -> AsyncTopic:
    made = handlers.client.topic(topic)
    await made.put()
    return made


async def named(spans: InMemorySpanExporter, name: str, count: int = 1) -> list[ReadableSpan]:
    def found() -> list[ReadableSpan]:
        return [span for span in spans.get_finished_spans() if span.name == name]

    await fact(lambda: len(found()) >= count)
    assert len(found()) == count
    return found()


def ids(span: Any) -> tuple[str, str]:
    """Of a span or its context."""
    context = span if isinstance(span, trace.SpanContext) else span.get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def links(span: ReadableSpan) -> list[tuple[str, str]]:
    return [ids(link.context) for link in span.links]


async def test_enqueue_claim_work_and_ack_are_linked_and_never_nest_for_ever(
    queue: AsyncTopic, handlers: Queue, spans: InMemorySpanExporter, collector: Collector
) -> None:
    seen: list[tuple[str, str]] = []

    @handlers.handler(queue.name, concurrency=1)
    async def handler(n: int) -> None:
        seen.append(ids(trace.get_current_span()))
        if n:
            await handlers.self().push(n - 1)

    with trace.get_tracer("shop").start_as_current_span("order") as order:
        await queue.enqueue(1)
    with trace.get_tracer("shop").start_as_current_span("the program, for as long as it runs"):
        async with working(handlers):
            processed = await named(spans, f"process {queue.name}", 2)
            settled = await named(spans, f"settle {queue.name}", 2)
    first, second = processed
    assert seen == [ids(first), ids(second)], "the handler sees its span"
    assert (links(first), links(second)) == ([ids(order)], [ids(first)])
    assert (first.parent, second.parent) == (None, None), "each is the first of a trace of its own"
    assert sorted(ids(span.parent) for span in settled) == sorted(seen)
    assert first.attributes is not None
    assert first.attributes["messaging.message.id"] == "1"
    assert first.attributes["holdfast.verdict"] == "ack"

    sent = await collector.named(f"send {queue.name}", 2)
    assert [(span.trace, span.parent) for span in sent] == [ids(order), ids(first)]
    received = await collector.named(f"receive {queue.name}", 2)
    assert [span.links for span in received] == [[ids(order)], [ids(first)]], "the producer's, and not the service's"
    assert [span.parent for span in received] == ["", ""]
    acked = await collector.named(f"settle {queue.name}", 2)
    assert sorted((span.trace, span.parent) for span in acked) == sorted(ids(span) for span in settled)


async def test_what_goes_wrong_is_said(queue: AsyncTopic, handlers: Queue, spans: InMemorySpanExporter) -> None:
    errors: dict[str, BaseException] = {
        "raised": ValueError("no such thing"),
        "again": Retry(60, "later"),
        "dead": Dead("never"),
    }

    @handlers.handler(queue.name, retry=[60])
    async def handler(what: str) -> None:
        raise errors[what]

    await queue.enqueue_many(list(errors))
    async with working(handlers):
        processed = await named(spans, f"process {queue.name}", 3)
        await fact(lambda: [one for one in spans.get_finished_spans() if one.name == f"settle {queue.name}"])
    told = {}
    for span in processed:
        assert span.attributes is not None
        assert span.status.status_code is trace.StatusCode.ERROR
        events = [(event.name, (event.attributes or {}).get("exception.type")) for event in span.events]
        told[span.attributes["error.type"]] = span.status.description, span.attributes["holdfast.verdict"], events
    assert told == {
        "ValueError": ("ValueError: no such thing", "nack", [("exception", "ValueError")]),
        "nack": ("later", "nack", []),
        "fail": ("never", "fail", []),
    }


async def test_a_request_that_settles_many_links_to_each_and_to_so_many_at_most(spans: InMemorySpanExporter) -> None:
    tracer = _trace.tracer()
    body = {"$seq": 1, "deliveries": 1, "meta": None}
    work = [_trace.begin_process(tracer, "t", body) for _ in range(130)]
    with _trace.settling("t", "ack", work):
        inside = ids(trace.get_current_span())
        sent = ACCOUNT.built(Request("GET", "/", lambda _: None), 1, 1)
    [settled] = await named(spans, "settle t")
    assert (settled.parent, links(settled)) == (None, [ids(span) for span in work[:128]])
    assert (inside, tuple(sent.headers["traceparent"].split("-")[1:3])) == (ids(settled), ids(settled))


async def test_in_threads_and_processes_the_span_is_current_and_does_not_stay(
    queue: AsyncTopic, handlers: Queue, spans: InMemorySpanExporter
) -> None:
    seen: list[tuple[str, str]] = []

    @handlers.handler(queue.name, concurrency=1)
    def handler(_: int) -> None:
        seen.append(ids(trace.get_current_span()))

    await queue.enqueue_many([1, 2])
    async with working(handlers):
        processed = await named(spans, f"process {queue.name}", 2)
    assert seen == [ids(span) for span in processed]
    assert not trace.get_current_span().get_span_context().is_valid

    def in_process(_: int) -> None:
        seen.append(ids(trace.get_current_span()))

    body = {"$seq": 1, "lease_id": "", "deliveries": 1}
    carrier = _trace.carrier_of(_trace.begin_process(_trace.tracer(), "t", body))
    order = Order(in_process, "t", 1, body, None, ACCOUNT, None, None, carrier)
    assert (await asyncio.to_thread(perform, order)).verdict.verb == "ack"
    assert seen[2] == tuple(carrier["traceparent"].split("-")[1:3])


@pytest.mark.parametrize("meta", [None, {}, {"traceparent": 7}, {"traceparent": "00-" + "0" * 32 + "-x-01"}, []])
def test_a_malformed_producer_is_none(spans: InMemorySpanExporter, meta: Any, caplog: pytest.LogCaptureFixture) -> None:
    span = _trace.begin_process(_trace.tracer(), "t", {"$seq": 1, "deliveries": 1, "meta": meta})
    assert span.links == ()
    _trace.end_process(span, "ack", None, None)
    _trace.end_process(span, "lost", "what comes later changes nothing", None)
    [ended] = spans.get_finished_spans()
    assert (ended.attributes or {})["holdfast.verdict"] == "ack"
    assert [one for one in caplog.records if one.name.startswith("opentelemetry.sdk")] == []


def test_an_application_without_a_provider_traces_nothing() -> None:
    assert _trace.tracer() is None
    assert "traceparent" not in ACCOUNT.built(Request("GET", "/", lambda _: None), 1, 1).headers
    assert _trace.carrier_of(None) == {}
