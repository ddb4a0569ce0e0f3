"""Streams: frames out of bytes however they are cut, and what their ends mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import AsyncClient, AsyncTopic, errors
from holdfast._sse import Frame, Frames
from holdfast._streams import Stream
from holdfast._wire import Request
from tests.conftest import Running

TEXT = (
    'retry: 2000\n\n: hb\n\nid: 3\nevent: job\ndata: {"a":"x\u2028y\u0085z"}\r\n\r\n'
    "data: one\ndata: two\n\nevent: nothing\n\n"
)
FRAMES = [Frame("job", '{"a":"x\u2028y\u0085z"}', "3"), Frame("message", "one\ntwo", "3")]


@given(st.lists(st.integers(0, len(TEXT.encode())), max_size=20))
def test_frames_do_not_depend_on_how_they_are_cut(cuts: list[int]) -> None:
    raw, frames, found, last = TEXT.encode(), Frames(), [], 0
    for cut in [*sorted(cuts), len(raw)]:
        found += list(frames.feed(raw[last:cut]))
        last = cut
    assert found == FRAMES


def told(code: int, error: str) -> Frame:
    return Frame("error", json.dumps({"code": code, "error": error, "message": "why", "topic": "t"}), "")


def test_advice_is_left_out_and_an_end_is_an_error() -> None:
    stream: Stream[str] = Stream(Request("GET", "/", lambda _: None), lambda frame, body: frame.event)
    assert stream.item(told(429, "not_ready")) is None
    assert stream.item(Frame("job", "{}", "")) == "job"
    for code, error, kind in [
        (409, "not_a_queue", errors.NotAQueue),
        (401, "unauthorized", errors.Unauthorized),
        (503, "shutting_down", errors.Unavailable),
        (408, "slow_reader", errors.APIStatusError),
    ]:
        with pytest.raises(kind):
            stream.item(told(code, error))


async def test_a_stream_is_read_in_several_goes_and_releases_what_was_not_settled(queue: AsyncTopic) -> None:
    """What has come with the job at which a loop was left is there for the next."""
    seqs = (await queue.enqueue_many(range(5))).seqs
    seen: list[int] = []
    async with queue.work(max=5) as jobs:
        while len(seen) < 4:
            async for job in jobs:
                seen.append(job.seq)
                await queue.ack(job)
                break
    assert tuple(seen) == seqs[:4]
    [other] = (await queue.claim(max=2, wait_ms=20_000)).jobs
    assert other.data == 4


async def test_the_ends_of_streams(serve: Callable[..., Awaitable[Running]], topic: str) -> None:
    service = await serve()
    async with AsyncClient(service.url) as client:
        queue = client.topic(topic)
        with pytest.raises(RuntimeError, match="async with"):
            await anext(queue.work())
        with pytest.raises(errors.TopicNotFound):
            async with queue.work():
                pass
        await queue.put()
        async with queue.work() as jobs:
            await queue.delete()
            with pytest.raises(errors.NotAQueue):
                await anext(jobs)
        await queue.put()
        async with queue.work() as jobs:
            service.app.state.stopping()
            with pytest.raises(errors.Unavailable):
                await anext(jobs)


async def test_a_stream_that_says_nothing_is_dead() -> None:
    """A connection whose other end has vanished without a word says nothing, not even a heartbeat."""
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nretry: 2000\n\n")
        await served.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with AsyncClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        silent: Stream[None] = Stream(Request("GET", "/", lambda _: None), lambda *_: None, silence=0.2)
        async with client._sender.events(silent) as events:
            with pytest.raises(errors.APITimeoutError):
                await anext(events)
    served.set()
    server.close()
