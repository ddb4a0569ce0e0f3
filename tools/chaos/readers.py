"""Who reads the round's log: by cursor, and over a stream that is opened again where it broke off."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import httpx

from holdfast._sse import Frames
from tools.chaos.record import now
from tools.chaos.traffic import Caller, Traffic
from tools.history.history import Outcome, Reading

PAGE: Final = 50
QUIET_SECONDS: Final = 5.0  # without a byte a stream is as good as broken


class Reader:
    """One of a log's readers. `at`: the seq up to which it has been told."""

    def __init__(self, traffic: Traffic, name: str) -> None:
        self.at = 0
        self._name = name
        self._topic = traffic.topics.log
        self._caller: Caller = traffic.caller(f"reader {name}")

    async def page(self) -> None:
        """By cursor, for ever."""
        while True:
            body = {"from_seq": self.at, "limit": PAGE, "wait_ms": 300}
            outcome, answer = await self._caller.post(f"/v0/topics/{self._topic}/diff", body)
            if outcome is not Outcome.DONE:
                await asyncio.sleep(0.05)
                continue
            if answer["tombstone"] is not None:
                self._caller.recorder.surprise(f"reader {self._name}: {answer['tombstone']}")
            self._told(answer["records"], answer["next_from_seq"])

    async def watch(self) -> None:
        """Over a stream, for ever: the same watch goes on where the last event that came whole ended."""
        wid, last = "", ""
        while True:
            if not wid:
                wid, last = await self._make(), ""
            last, gone = await self._listen(wid, last)
            wid = "" if gone else wid
            await asyncio.sleep(0.05)

    async def _make(self) -> str:
        while True:
            body = {"topics": {self._topic: {"from_seq": self.at}}, "limit": PAGE, "heartbeat_ms": 1000}
            outcome, answer = await self._caller.post("/v0/watch", body)
            if outcome is Outcome.DONE:
                return str(answer["wid"])
            await asyncio.sleep(0.05)

    async def _listen(self, wid: str, last: str) -> tuple[str, bool]:
        """The id of the last event, and whether the watch is gone; until the stream ends."""
        caller = self._caller
        headers = {"accept": "text/event-stream"} | ({"last-event-id": last} if last else {})
        url = f"{caller.url()}/v0/watch/{wid}"
        try:
            async with caller.http.stream("GET", url, headers=headers, timeout=QUIET_SECONDS) as answer:
                if not answer.is_success:
                    if answer.status_code not in (404, 409, 503):
                        caller.recorder.surprise(f"/v0/watch: {answer.status_code}")
                    return last, answer.status_code == 404
                frames = Frames()
                async for chunk in answer.aiter_bytes():
                    for frame in frames.feed(chunk):
                        if frame.event == "record":
                            body = json.loads(frame.data)
                            # After a crash some are told again (docs/semantics.md, section 17): their seqs say so.
                            self._told([one for one in body["records"] if one["$seq"] > self.at], body["to_seq"])
                            last = frame.id
                        elif frame.event not in ("caught-up", "error"):
                            caller.recorder.surprise(f"reader {self._name}: {frame.event} {frame.data}")
        except httpx.TransportError:
            pass
        return last, False

    def _told(self, records: list[dict[str, Any]], to: int) -> None:
        if records:
            pairs = tuple((record["$seq"], record["data"]["id"]) for record in records)
            self._caller.recorder.note(Reading(self._name, pairs, now(), self._topic))
        self.at = max(self.at, to)
