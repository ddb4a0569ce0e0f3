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
    jobs = (await queue.claim(max=3)).jobs
    assert [job.meta for job in jobs] == [
        {"traceparent": PARENT, "b": 1},
        {"traceparent": PARENT},
        {"traceparent": "its own"},
    ]


@pytest.mark.parametrize(
    "bad", ["", "x", PARENT.upper(), "ff" + PARENT[2:], PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)]
)
async def test_what_is_no_traceparent_is_refused(queue: AsyncTopic, bad: str) -> None:
    with pytest.raises(ValueError, match="traceparent"):
        await queue.enqueue("a", traceparent=bad)


async def test_the_current_context_is_taken_where_opentelemetry_is_installed(queue: AsyncTopic) -> None:
    with traced():
        await queue.enqueue("a")
    await queue.enqueue("b")
    inside, outside = (await queue.claim(max=2)).jobs
    assert (inside.meta, outside.meta) == ({"traceparent": PARENT}, None)


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
