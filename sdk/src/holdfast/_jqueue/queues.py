"""BrokerQueue and DirectQueue."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cached_property
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx

from holdfast import _trace
from holdfast._client import AsyncClient
from holdfast._heartbeats import Heartbeats, Holding, culprits
from holdfast._jqueue.group import Commit, Group
from holdfast._jqueue.state import Job, QueueState, check_interval
from holdfast._jqueue.verbs import Put, Take, Verbs
from holdfast.errors import JQueueError, LeaseLost

A = TypeVar("A")
R = TypeVar("R")

FIVE_MINUTES: Final = timedelta(minutes=5)
MAX_TAKEN: Final = 1_000  # jobs in a claim


class _Queue(ABC):
    """Base class of both queues. `stale_timeout` is the length of a lease, 100 ms to 24 h. `heartbeat_http`: your own
    httpx.Client for heartbeats, for proxies or certificates. The queue does not close it."""

    def __init__(
        self,
        url: str | AsyncClient,
        topic: str,
        stale_timeout: timedelta = FIVE_MINUTES,
        *,
        api_key: str | None = None,
        heartbeat_http: httpx.Client | None = None,
    ) -> None:
        check_interval("stale_timeout", stale_timeout)
        if not timedelta(milliseconds=100) <= stale_timeout <= timedelta(days=1):
            raise ValueError("stale_timeout must be 100 ms to 24 h")
        self._owns_client = isinstance(url, str)
        self._client = AsyncClient(url, api_key) if isinstance(url, str) else url
        self.topic: Final = topic
        self.stale_timeout: Final = stale_timeout
        self._verbs = Verbs(self._client.topic(topic), stale_timeout)
        self._heartbeat_http = heartbeat_http
        self._kept: dict[str, Holding] = {}
        self._blocks: dict[str, asyncio.Task[Any] | None] = {}  # the tasks that run those jobs
        self._closed = False

    async def enqueue(self, entrypoint: str, payload: bytes, priority: int = 0) -> Job:
        """Enqueue a job. Lower priorities come first. It is written once, even if the call is retried. Raises
        StorageError if the call fails; the job may have been written if the connection broke."""
        return await self._do(self._verbs.enqueue, checked(entrypoint, payload, priority, _trace.context(None)))

    async def dequeue(self, entrypoint: str | None = None, *, batch_size: int = 1) -> list[Job]:
        """Claim up to `batch_size` jobs (at most 1,000), of this entrypoint or of any. Returns an empty list if none is
        ready."""
        check_int("batch_size", batch_size)
        if not 1 <= batch_size <= MAX_TAKEN:
            raise ValueError(f"batch_size must be 1 to {MAX_TAKEN}")
        if entrypoint is not None:
            check_entrypoint(entrypoint)
        return await self._do(self._verbs.dequeue, Take(entrypoint, batch_size))

    async def ack(self, job_id: str) -> None:
        """Complete a job. Raises JobNotFoundError if no worker holds it. If this process held it, the error is
        LeaseLost, a subclass."""
        await self._settle(self._verbs.ack, job_id)

    async def nack(self, job_id: str) -> None:
        """Return a job to the queue. Raises as `ack`."""
        await self._settle(self._verbs.nack, job_id)

    async def heartbeat(self, job_id: str) -> None:
        """Extend a job's lease by `stale_timeout` from now. Raises as `ack`."""
        await self._do(self._verbs.heartbeat, job_id)

    async def read_state(self) -> QueueState:
        """Read the queue's first 10,000 jobs. Changes nothing."""
        if self._owns_client:
            self._must_be_open()
        return await self._verbs.read_state()

    @cached_property
    def _heartbeats(self) -> Heartbeats:
        return Heartbeats(self._client.account, self._heartbeat_http)

    def keep(self, job_id: str, interval: float, lost: Callable[[LeaseLost], None]) -> Callable[[], None]:
        """Extend a job's lease every `interval` seconds from the queue's thread. Returns a function that stops it. Use
        HeartbeatManager instead."""
        self._must_be_open()
        known = self._verbs.known(job_id)
        heartbeats = self._heartbeats
        heartbeats.watch(asyncio.get_running_loop(), self._culprit)
        self._blocks[job_id] = asyncio.current_task()
        holding = heartbeats.hold(
            self.topic,
            known.lease,
            lease_ms=self._verbs.lease_ms,
            interval=interval,
            lost=lost,
            deadline=known.deadline,
        )
        self._kept[job_id] = holding

        def end() -> None:
            heartbeats.release(holding)
            known.deadline = holding.deadline
            if self._kept.get(job_id) is holding:
                del self._kept[job_id]
                del self._blocks[job_id]

        return end

    def _culprit(self, task: asyncio.Task[Any] | None) -> str:
        return culprits([(f"job {job_id} of {self.topic}", its) for job_id, its in list(self._blocks.items())], task)

    async def _settle(self, commit: Commit[str, None], job_id: str) -> None:
        """Settle a job. Meanwhile the end of its lease is not reported as lost."""
        holding = self._kept.get(job_id)
        if holding is None:
            await self._do(commit, job_id)
            return
        holding.settling = True
        try:
            await self._do(commit, job_id)
        except BaseException:
            holding.settling = False
            raise
        self._heartbeats.release(holding)

    @abstractmethod
    async def _do(self, commit: Commit[A, R], call: A) -> R: ...

    def _must_be_open(self) -> None:
        if self._closed:
            raise JQueueError(f"The queue {self.topic} is closed: make a new {type(self).__name__}.")

    async def _close(self) -> None:
        self._closed = True
        await self._verbs.payloads.finish()
        if heartbeats := self.__dict__.pop("_heartbeats", None):
            await asyncio.to_thread(heartbeats.close)
        if self._owns_client:
            await self._client.aclose()


def checked(entrypoint: str, payload: bytes, priority: int, trace: Mapping[str, str]) -> Put:
    """Check the arguments of an enqueue. Raises TypeError and ValueError."""
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise TypeError(f"payload must be bytes, not {type(payload).__name__}")
    check_int("priority", priority)
    if not -32_768 <= priority <= 32_767:
        raise ValueError("priority must be -32768 to 32767")
    check_entrypoint(entrypoint)
    return Put(entrypoint, bytes(payload), priority, trace)


def check_entrypoint(entrypoint: str) -> None:
    """Raises TypeError and ValueError for an invalid entrypoint, before it can fail a batch with others."""
    if not isinstance(entrypoint, str):
        raise TypeError(f"entrypoint must be a str, not {type(entrypoint).__name__}")
    if not 1 <= len(entrypoint) <= 128 or "\0" in entrypoint or len(entrypoint.encode()) > 256:
        raise ValueError("entrypoint must have 1 to 128 characters, at most 256 bytes, and no NUL")


def check_int(name: str, value: int) -> None:
    """Raises TypeError for another type."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {value!r}")


class DirectQueue(_Queue):
    """A queue that makes one request for each call. `url` is the service's address or an AsyncClient. Use it in
    `async with`, or close it with `aclose()`."""

    async def requeue_stale(self, timeout: timedelta) -> int:  # noqa: ASYNC109 - jqueue's signature
        """Return jobs in progress without a heartbeat for `timeout` to the queue. Returns how many.

        This ends leases early. Jobs whose lease has already ended are ready anyway and don't count. Assumes that leases
        last for this queue's `stale_timeout`. Jobs that were extended, settled or claimed meanwhile are left alone.
        Raises StorageError."""
        check_interval("timeout", timeout)
        self._must_be_open()
        return await self._verbs.requeue_stale(timeout)

    async def aclose(self) -> None:
        """Close the queue's connections."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _do(self, commit: Commit[A, R], call: A) -> R:
        self._must_be_open()
        [outcome] = await commit([call])
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class BrokerQueue(_Queue):
    """A queue that sends concurrent calls in one request. `url` is the service's address or an AsyncClient. Use it in
    `async with`, or between `start()` and `stop()`. At the end, pending calls are carried out first."""

    _groups: Mapping[str, Group[Any, Any]] | None = None

    async def start(self) -> None:
        """Start accepting calls. Raises RuntimeError if the queue is already started."""
        if self._groups is not None:
            raise RuntimeError(f"the queue {self.topic} is already started")
        if self._owns_client:
            self._must_be_open()
        self._closed = False
        verbs = self._verbs
        self._groups = {
            "enqueue": Group(verbs.enqueue, weigh=lambda put: len(put.payload)),
            "dequeue": Group(verbs.dequeue, unclaimed=verbs.give_back),
            **{name: Group(getattr(verbs, name)) for name in ("ack", "nack", "heartbeat")},
        }

    async def stop(self) -> None:
        """Stop accepting calls, carry out pending ones, and close the connections."""
        groups, self._groups = self._groups or {}, None
        await asyncio.gather(*(group.drain() for group in groups.values()))
        await self._close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def _do(self, commit: Commit[A, R], call: A) -> R:
        if self._groups is None:
            self._must_be_open()
            raise JQueueError("Use a BrokerQueue in `async with`, or between start() and stop().")
        group: Group[A, R] = self._groups[commit.__name__]
        return await group.submit(call)
