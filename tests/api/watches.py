"""A watch as a client has it: made, and read as a stream of events."""

from __future__ import annotations

import base64
import json
from contextlib import AbstractAsyncContextManager

import httpx

from tests.api.dialect import Body, Topic, accepted
from tests.api.events import Frame, WorkStream, streaming


async def made(http: httpx.AsyncClient, *topics: Topic, **fields: object) -> Body:
    """A watch of these topics from their beginnings, unless `topics` is given as a field."""
    return accepted(await http.post("/v0/watch", json={"topics": {topic.name: {} for topic in topics}, **fields}))


def position(frame: Frame) -> dict[str, int]:
    """What the id of a frame says: seqs by topic."""
    text = frame.fields["id"]
    seqs: dict[str, int] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return seqs


def event_id(**seqs: int) -> str:
    """The id of a frame that says this."""
    return base64.urlsafe_b64encode(json.dumps(seqs).encode()).decode().rstrip("=")


class WatchStream(WorkStream):
    """An open stream of a watch."""

    async def records(self, count: int, topic: Topic | None = None) -> list[object]:
        """The data of the next so many records; every other frame than records and caught-up fails the test."""
        found: list[object] = []
        while len(found) < count:
            frame = await self.next()
            if frame.fields["event"] == "caught-up":
                continue
            assert frame.fields["event"] == "record", frame.text
            assert topic is None or frame.data["topic"] == topic.name
            found += [record["data"] for record in frame.data["records"]]
        assert len(found) == count, found
        return found

    async def next(self, seconds: float = 10) -> Frame:
        """The next frame that is no comment."""
        while True:
            frame = await self.frame(seconds)
            assert frame is not None, "the server closed the stream"
            if "event" in frame.fields:
                return frame

    async def ended(self, seconds: float = 10) -> None:
        """The server closes the stream, and says nothing more."""
        while (frame := await self.frame(seconds)) is not None:
            assert "event" not in frame.fields, frame.text


def watching(
    http: httpx.AsyncClient, watch: Body, last: str | None = None, **query: str
) -> AbstractAsyncContextManager[WatchStream]:
    """Its stream. `last`: the Last-Event-ID."""
    headers = {} if last is None else {"last-event-id": last}
    return streaming(http, watch["stream_url"], WatchStream, headers, **query)
