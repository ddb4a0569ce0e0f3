"""A work stream as a client reads it: frames with the time of their arrival."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeVar

import httpx
import msgspec

from app.features.logs.v0_watch import WATCH
from app.features.queue.v0_work import FRAMES as WORK
from tests.api.dialect import Body, Topic

HEARTBEAT = ": hb"
KINDS = {**WORK, **WATCH}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, without the empty line that ends it; `at` by the monotonic clock."""

    text: str
    at: float

    @property
    def fields(self) -> dict[str, str]:
        """Its fields by name, read as the format says: three line ends, and a field that comes again is one more
        line of it. A heartbeat has none."""
        found: dict[str, list[str]] = {}
        for line in re.split(r"\r\n|\r|\n", self.text):
            name, _, value = line.partition(":")
            if name:
                found.setdefault(name, []).append(value.removeprefix(" "))
        return {name: "\n".join(lines) for name, lines in found.items()}

    @property
    def data(self) -> Body:
        """Its data; where the description says what that is of such an event, it must be that."""
        fields = self.fields
        body: Body = json.loads(fields["data"])
        struct = KINDS.get(fields["event"])
        if struct is not None:
            msgspec.json.decode(fields["data"], type=struct)
            assert body.keys() <= {field.encode_name for field in msgspec.structs.fields(struct)}, self.text
        return body


class WorkStream:
    """An open stream. `seqs` are those of all jobs that came."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.headers = response.headers
        self.seqs: list[int] = []
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        rest = ""
        try:
            async for text in self.response.aiter_text():
                *frames, rest = (rest + text).split("\n\n")
                for frame in frames:
                    self._frames.put_nowait(Frame(frame, time.monotonic()))
        finally:
            self._frames.put_nowait(None)

    async def frame(self, seconds: float = 10) -> Frame | None:
        """The next frame, of any kind; None once the server has closed the stream."""
        return await asyncio.wait_for(self._frames.get(), seconds)

    async def event(self, kind: str, seconds: float = 10) -> Frame:
        """The next frame that is no comment, which must be of this kind."""
        while True:
            frame = await self.frame(seconds)
            assert frame is not None, "the server closed the stream"
            if "event" in frame.fields:
                assert frame.fields["event"] == kind, frame.text
                return frame

    async def job(self, seconds: float = 10) -> Body:
        """The next job."""
        job = (await self.event("job", seconds)).data
        self.seqs.append(job["$seq"])
        return job

    async def jobs(self, count: int) -> list[Body]:
        return [await self.job() for _ in range(count)]

    async def error(self) -> Body:
        return (await self.event("error")).data

    def waiting(self) -> list[Frame]:
        """Frames that came and were not asked for yet, heartbeats left out."""
        frames = [self._frames.get_nowait() for _ in range(self._frames.qsize())]
        return [frame for frame in frames if frame is not None and frame.text != HEARTBEAT]

    async def close(self) -> None:
        """Leave, as a client whose process ends does."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self.response.aclose()


Stream = TypeVar("Stream", bound=WorkStream)


@contextlib.asynccontextmanager
async def streaming(
    http: httpx.AsyncClient, url: str, kind: type[Stream], headers: dict[str, str], **query: str | int | list[str]
) -> AsyncIterator[Stream]:
    """A stream, open once its first frame has come; left at the end."""
    asked = http.build_request("GET", url, params=query, headers={"accept": "text/event-stream"} | headers)
    response = await http.send(asked, stream=True)
    if response.status_code != 200:
        await response.aread()
    assert response.status_code == 200, response.text
    stream = kind(response)
    try:
        first = await stream.frame()
        assert first is not None
        assert first.text == "retry: 2000"
        yield stream
    finally:
        await stream.close()


def working(topic: Topic, node: str = "n", **query: str | int | list[str]) -> AbstractAsyncContextManager[WorkStream]:
    """A work stream of this queue."""
    return streaming(topic.http, f"{topic.path}/work", WorkStream, {}, node=node, **query)


async def frames_of_a_second(stream: WorkStream, topic: Topic) -> list[Frame]:
    """A record is written every 100 ms to a topic whose stream beats every 300 ms: what comes up to the first beat
    afterwards. None must come before: but where the machine stood still, one may."""

    async def write() -> None:
        for n in range(10):
            await topic.append({"data": n})
            await asyncio.sleep(0.1)

    writing = asyncio.create_task(write())
    frames: list[Frame] = []
    while not (writing.done() and frames[-1].text == HEARTBEAT):
        frame = await stream.frame()
        assert frame is not None
        frames.append(frame)
    early = [one for last, one in itertools.pairwise(frames) if one.text == HEARTBEAT and one.at - last.at < 0.2]
    assert len(early) <= 1
    return frames
