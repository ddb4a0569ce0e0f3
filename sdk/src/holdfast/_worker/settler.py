"""Batches acks, nacks and fails into requests: sent at once if none is running, else within 5 ms."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from holdfast import _trace, errors
from holdfast._client import AsyncTopic
from holdfast._heartbeats import MAX_BATCH
from holdfast._worker.outcomes import ACK, Judged, Verdict, why
from holdfast._worker.taken import Taken
from holdfast.models.leases import Settled

log: Final = logging.getLogger("holdfast")

LATE_SECONDS: Final = 0.005
MAX_ACKS: Final = 3  # concurrent requests
MAX_OTHERS: Final = 2  # concurrent requests, independent of acks


class Settler:
    """Settles jobs of a topic. Calls `settled` with each settled batch, and `removed` with the keys of the completed
    jobs' objects."""

    def __init__(
        self, topic: AsyncTopic, settled: Callable[[Sequence[Taken]], None], removed: Callable[[list[str]], None]
    ) -> None:
        self._topic = topic
        self._settled = settled
        self._removed = removed
        self._waiting: dict[Verdict, list[Taken]] = {}
        self._timer: asyncio.Handle | None = None
        self._acks: set[asyncio.Task[None]] = set()  # running requests
        self._others: set[asyncio.Task[None]] = set()

    def add(self, taken: Taken, judged: Judged) -> None:
        """Settle a job with the next request. Its lease is extended until the answer."""
        taken.detail = judged.detail
        if taken.holding is not None:
            taken.holding.settling = True
        batch = self._waiting.get(judged.verdict)
        if batch is None:
            batch = self._waiting[judged.verdict] = []
        batch.append(taken)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            busy = self._acks if judged.verdict == ACK else self._others
            self._timer = loop.call_later(LATE_SECONDS, self._flush) if busy else loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while ACK in self._waiting and len(self._acks) < MAX_ACKS:
            self._begin(ACK, self._acks)
        while len(self._others) < MAX_OTHERS:
            verdict = next((verdict for verdict in self._waiting if verdict != ACK), None)
            if verdict is None:
                break
            self._begin(verdict, self._others)

    def _begin(self, verdict: Verdict, under_way: set[asyncio.Task[None]]) -> None:
        batch, rest = _apart(self._waiting.pop(verdict))
        if rest:
            self._waiting[verdict] = rest
        task = asyncio.create_task(self._settle(verdict, batch))
        under_way.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._acks.discard(task)
        self._others.discard(task)
        if self._waiting:
            self._flush()

    async def _settle(self, verdict: Verdict, batch: Sequence[Taken]) -> None:
        try:
            await self._send(verdict, batch)
        finally:
            self._settled(batch)

    async def _send(self, verdict: Verdict, batch: Sequence[Taken]) -> None:
        """Send a request. A refused batch is halved until the bad job is found."""
        try:
            with _trace.settling(self._topic.name, verdict.verb, [one.span for one in batch if one.span is not None]):
                settled = await self._request(verdict, batch)
        except errors.InvalidRequest as error:
            half = len(batch) // 2
            if half:
                await self._send(verdict, batch[:half])
                await self._send(verdict, batch[half:])
            elif batch[0].detail is not None:
                # Retry without the refused text. An ack must not lose its result, so it becomes a nack.
                batch[0].detail = why(f"the result was refused: {error}") if verdict.verb == "ack" else None
                await self._send(Verdict("nack") if verdict.verb == "ack" else verdict, batch)
            else:
                log.error("%d jobs of %s could not be settled: %s", len(batch), self._topic.name, error)
        except errors.HoldfastError as error:
            log.error(
                "%d jobs of %s could not be settled. They will be ready again when their leases end: %s",
                len(batch),
                self._topic.name,
                error,
            )
        else:
            if verdict.verb == "ack" and (keys := {taken.seq: taken.key for taken in batch if taken.key is not None}):
                self._removed([key for seq, key in keys.items() if seq not in settled.skipped])
            if settled.skipped and not settled.repeated and verdict.verb != "uncommitted":
                log.warning("%d jobs of %s had lost their leases", len(settled.skipped), self._topic.name)

    async def _request(self, verdict: Verdict, batch: Sequence[Taken]) -> Settled:
        details = [taken.detail for taken in batch]
        beside = details if any(one is not None for one in details) else None
        match verdict.verb:
            case "ack":
                return await self._topic.ack(*batch, results=beside, counts=False)
            case "nack" | "uncommitted":
                return await self._topic.nack(*batch, delay_ms=verdict.delay_ms, errors=beside, counts=False)
            case "release":
                return await self._topic.nack(*batch, refund=True, counts=False)
            case "fail":
                return await self._topic.fail(*batch, errors=beside, counts=False)


def _apart(waiting: Sequence[Taken]) -> tuple[list[Taken], list[Taken]]:
    """Split jobs into one request and the rest. A job with two leases, an old one and a new one, goes into two
    requests, because answers name seqs."""
    first: dict[int, Taken] = {}
    rest: list[Taken] = []
    for taken in waiting:
        if len(first) == MAX_BATCH or first.setdefault(taken.seq, taken) is not taken:
            rest.append(taken)
    return list(first.values()), rest
