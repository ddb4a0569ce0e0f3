"""A trace travels with its jobs, in their metadata."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager

import pytest

from holdfast import AsyncClient, AsyncTopic, BrokerQueue, Record

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_a_traceparent_goes_into_the_metadata(queue: AsyncTopic) -> None:
    await queue.enqueue("a", meta={"b": 1}, traceparent=PARENT)
    await queue.enqueue_many(["c", Record(data="d", meta={"traceparent": "its own"})], traceparent=PARENT)
    with traced():  # the current context, where OpenTelemetry is installed
        await queue.enqueue("e")
    await queue.enqueue("f")
    jobs = (await queue.claim(max=5)).jobs
    assert [job.meta for job in jobs] == [
        {"traceparent": PARENT, "b": 1},
        {"traceparent": PARENT},
        {"traceparent": "its own"},
        {"traceparent": PARENT},
        None,
    ]
    for bad in ("", "x", PARENT.upper(), "ff" + PARENT[2:], PARENT.replace(PARENT[3:35], "0" * 32)):
        with pytest.raises(ValueError, match="traceparent"):
            await queue.enqueue("a", traceparent=bad)


async def test_calls_that_share_a_request_keep_their_traces(client: AsyncClient, topic: str) -> None:
    async with BrokerQueue(client, topic) as queue:
        with traced():
            first = asyncio.create_task(queue.enqueue("task", b"a"))
        await asyncio.gather(first, queue.enqueue("task", b"b"))
    jobs = [job async for job in client.topic(topic).jobs(order="oldest")]
    assert [job.meta for job in jobs] == [{"traceparent": PARENT}, None]


def traced() -> AbstractContextManager[object]:
    """A block in which OpenTelemetry has a current span."""
    trace = pytest.importorskip("opentelemetry.trace")
    context = trace.SpanContext(
        int(PARENT[3:35], 16), int(PARENT[36:52], 16), is_remote=False, trace_flags=trace.TraceFlags(1)
    )
    block: AbstractContextManager[object] = trace.use_span(trace.NonRecordingSpan(context))
    return block
