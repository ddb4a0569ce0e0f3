"""The calls of a jqueue-compatible queue, each for a batch.

An entrypoint is stored as the job's tag, for people, and as its tenant, which claims filter by.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import cycle
from typing import Any, Final

from holdfast import models
from holdfast._client import AsyncTopic
from holdfast._jqueue.payloads import Payloads
from holdfast._jqueue.state import Job, JobStatus, QueueState, is_stale
from holdfast.errors import (
    APIStatusError,
    Forbidden,
    HoldfastError,
    JobNotFoundError,
    LeaseLost,
    NotFound,
    ObjectError,
    StorageError,
    TopicNotFound,
)

log: Final = logging.getLogger("holdfast")

NODE: Final = "jqueue"  # holder of the jobs in all processes: as in jqueue, anyone who knows a job's id may settle it
# As in jqueue, a returned job is ready at once, and a DEAD job stays in the queue.
SETTINGS: Final = models.TopicConfig(priority_order="lowest_first", on_exhausted="fail", backoff=None)
PRIORITY: Final = "$priority"  # in a job's metadata, because a claim's answer lacks the priority
MAX_READ: Final = 10_000
MAX_KNOWN: Final = 100_000
MAX_ERROR: Final = 2_000  # characters
MAX_SETTLED: Final = 1_000  # seqs in a nack
MAX_DIGITS: Final = 18  # of a seq; the service's limit is 2^63

Outcome = BaseException | None
Send = Callable[..., Coroutine[Any, Any, models.Settled]]


@dataclass(frozen=True, slots=True)
class Put:
    """An enqueue."""

    entrypoint: str
    payload: bytes
    priority: int
    trace: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Take:
    """A dequeue."""

    entrypoint: str | None
    most: int


@dataclass(slots=True)
class Known:
    """This process's last lease on a job, and its end by time.monotonic(). It is kept after it was lost or settled, as
    a fence: otherwise a retry would settle another worker's lease. `key`: the object with the payload."""

    lease: models.Lease
    deadline: float
    key: str | None = None


class Verbs:
    """A queue's calls on its topic. Each call of a batch has its own outcome."""

    def __init__(self, topic: AsyncTopic, stale_timeout: timedelta) -> None:
        self._topic = topic
        self.payloads: Final = Payloads(topic)
        self.lease_ms = round(stale_timeout.total_seconds() * 1000)
        self._made = False
        self._making = asyncio.Lock()
        self._known: OrderedDict[str, Known] = OrderedDict()

    def known(self, job_id: str) -> Known:
        """This process's last lease on a job, with its fence; else any current lease. Raises JobNotFoundError for a
        malformed id."""
        if known := self._known.get(job_id):
            return known
        if not (job_id.isascii() and job_id.isdigit() and job_id[0] != "0" and len(job_id) <= MAX_DIGITS):
            raise JobNotFoundError(job_id)
        return Known(models.Lease(int(job_id), NODE), time.monotonic() + self.lease_ms / 1000)

    async def enqueue(self, puts: Sequence[Put]) -> Sequence[Job | BaseException]:
        """Write a batch once, even if it is retried. If the service refuses it, halves it until the bad job is found,
        and fails only that."""
        try:
            await self._ensure()
            appended = await self._topic.enqueue_many([record_of(put) for put in puts])
        except (HoldfastError, ValueError) as error:
            if len(puts) == 1 or not _concerns_one(error):
                return [error if isinstance(error, ValueError) else self._stored("enqueue", error) for _ in puts]
            half = len(puts) // 2
            return [*await self.enqueue(puts[:half]), *await self.enqueue(puts[half:])]
        now = datetime.now(UTC)
        return [
            Job(
                id=str(seq),
                entrypoint=put.entrypoint,
                payload=put.payload,
                status=JobStatus.QUEUED,
                priority=put.priority,
                created_at=now,
            )
            for put, seq in zip(puts, appended.seqs, strict=True)
        ]

    async def dequeue(self, takes: Sequence[Take]) -> Sequence[list[Job] | BaseException]:
        """Make one claim for each entrypoint, and distribute its jobs among the callers."""
        outcomes: list[list[Job] | BaseException] = [[] for _ in takes]
        by_entrypoint: dict[str | None, list[int]] = {}
        for at, take in enumerate(takes):
            by_entrypoint.setdefault(take.entrypoint, []).append(at)

        async def of_one(entrypoint: str | None, places: Sequence[int]) -> None:
            try:
                jobs = await self._claim(entrypoint, sum(takes[at].most for at in places))
            except HoldfastError as error:
                for at in places:
                    outcomes[at] = self._stored("dequeue", error)
                return
            shares: dict[int, list[Job]] = {at: [] for at in places}
            turns = cycle(places)
            for job in jobs:
                at = next(at for at in turns if len(shares[at]) < takes[at].most)
                shares[at].append(job)
            for at, share in shares.items():
                outcomes[at] = share

        await asyncio.gather(*(of_one(entrypoint, places) for entrypoint, places in by_entrypoint.items()))
        return outcomes

    async def ack(self, job_ids: Sequence[str]) -> Sequence[Outcome]:
        """Complete jobs."""

        async def was_done(seq: int) -> bool:
            try:
                return (await self._topic.result(seq)).state == "completed"
            except NotFound:
                return False

        keys = await self._keys(job_ids)
        outcomes = await self._settle(job_ids, self._topic.ack, was_done)
        done = [job_id for job_id, outcome in zip(job_ids, outcomes, strict=True) if outcome is None]
        self.payloads.remove([keys[job_id] for job_id in done if job_id in keys])
        return outcomes

    async def nack(self, job_ids: Sequence[str]) -> Sequence[Outcome]:
        """Return jobs, ready at once."""

        async def was_returned(_: int) -> bool:
            return True  # the answer was lost, and this lease has ended

        return await self._settle(job_ids, partial(self._topic.nack, delay_ms=0), was_returned)

    async def heartbeat(self, job_ids: Sequence[str]) -> Sequence[Outcome]:
        """Extend leases by stale_timeout from now."""

        async def extend(*leases: models.Lease) -> set[int]:
            began = time.monotonic()
            extended = await self._topic.extend(*leases, lease_ms=self.lease_ms)
            for seq in extended.deadlines:
                if known := self._known.get(str(seq)):
                    known.deadline = began + self.lease_ms / 1000
            return set(extended.skipped)

        return await self._each(job_ids, extend)

    async def give_back(self, shares: Sequence[Sequence[Job]]) -> None:
        """Return jobs of cancelled callers without counting the delivery. If that fails, they are ready again when
        their leases end."""
        leases = [self.known(job.id).lease for jobs in shares for job in jobs]
        for at in range(0, len(leases), MAX_SETTLED):
            with suppress(HoldfastError):
                await self._topic.nack(*leases[at : at + MAX_SETTLED], refund=True, counts=False)

    async def read_state(self) -> QueueState:
        """Read the queue's jobs. Raises StorageError."""
        try:
            await self._ensure()
            state = await self._topic.get(touch=False)
            jobs = []
            async for job in self._topic.jobs(order="oldest", limit=1_000):
                if job.state != "expired":
                    jobs.append(job)
                if len(jobs) == MAX_READ:
                    break
            payloads = await self.payloads.read([job.data for job in jobs])
        except HoldfastError as error:
            raise self._stored("read_state", error) from error
        found = []
        for job, payload in zip(jobs, payloads, strict=True):
            if isinstance(payload, ObjectError):  # for example, the job was acked meanwhile
                log.warning("Job %d of %s is missing from the state: %s", job.seq, self._topic.name, payload)
            else:
                found.append(self._job_of(job, payload))
        return QueueState(tuple(found), state.head_seq)

    async def requeue_stale(self, age: timedelta) -> int:
        """Release jobs of jqueue-compatible queues without a heartbeat for `age`. Returns how many are ready again.
        Leaves jobs alone that were extended, settled or claimed meanwhile. Raises StorageError."""
        cutoff = datetime.now(UTC) - age if age > timedelta() else datetime.max.replace(tzinfo=UTC)
        try:
            await self._ensure()
            leased = self._topic.jobs(state="leased", node=NODE, limit=1_000)
            stale = [
                (job.seq, job.visible_at)
                async for job in leased
                if job.visible_at is not None and is_stale(self._job_of(job, b""), cutoff)
            ]
            returned = 0
            for at in range(0, len(stale), MAX_SETTLED):
                seqs, until = zip(*stale[at : at + MAX_SETTLED], strict=True)
                taken = await self._topic.release(seqs, node=NODE, visible_at=until)
                returned += taken.released - taken.ended
        except HoldfastError as error:
            raise self._stored("requeue_stale", error) from error
        return returned

    async def _ensure(self) -> None:
        """Create the topic if it does not exist: a durable queue, lower priorities first."""
        if self._made:
            return
        async with self._making:
            try:
                await self._topic.get(touch=False)
            except Forbidden:
                pass  # a producer's key without read access: assume that the topic exists
            except TopicNotFound:
                await self._topic.put(replace(SETTINGS, lease_ms=self.lease_ms))
            self._made = True

    async def _claim(self, entrypoint: str | None, most: int) -> list[Job]:
        await self._ensure()
        tenants = None if entrypoint is None else [entrypoint]
        began = time.monotonic()
        claimed = await self._topic.claim(node=NODE, max=most, lease_ms=self.lease_ms, tenants=tenants, counts=False)
        for job in claimed.jobs:
            lease = models.Lease(job.seq, NODE, job.lease_id)
            self._known[str(job.seq)] = Known(lease, began + self.lease_ms / 1000, self.payloads.key_of(job.data))
            self._known.move_to_end(str(job.seq))
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return await self._with_payloads(claimed.jobs)

    async def _with_payloads(self, claimed: Sequence[models.ClaimedJob]) -> list[Job]:
        """Claimed jobs with their payloads. Returns jobs with unreadable payloads to the queue; raises the ObjectError
        if there are no others."""
        jobs: list[Job] = []
        unread: list[tuple[models.ClaimedJob, ObjectError]] = []
        for job, payload in zip(claimed, await self.payloads.read([job.data for job in claimed]), strict=True):
            if isinstance(payload, ObjectError):
                log.warning("Job %d of %s is returned: %s", job.seq, self._topic.name, payload)
                unread.append((job, payload))
            else:
                jobs.append(self._claimed_job(job, payload))
        if unread:
            why = [str(error)[:MAX_ERROR] for _, error in unread]
            await self._topic.nack(*(job for job, _ in unread), errors=why, counts=False)
            if not jobs:
                raise unread[0][1]
        return jobs

    async def _keys(self, job_ids: Sequence[str]) -> dict[str, str]:
        """The keys of these jobs' objects. Asks the service about jobs that another process claimed."""
        if not self.payloads.has_store:
            return {}
        keys: dict[str, str | None] = {}
        for job_id in job_ids:
            with suppress(HoldfastError):
                known = self._known.get(job_id)
                if known is None:
                    data = (await self._topic.job(self.known(job_id).lease.seq)).data
                keys[job_id] = self.payloads.key_of(data) if known is None else known.key
        return {job_id: key for job_id, key in keys.items() if key is not None}

    async def _settle(
        self, job_ids: Sequence[str], send: Send, was_done: Callable[[int], Coroutine[Any, Any, bool]]
    ) -> Sequence[Outcome]:
        """Settle jobs with one request. A repeated id is settled once; the second call gets JobNotFoundError. If the
        answer may not be the first, `was_done` checks the skipped jobs."""

        async def settle(*leases: models.Lease) -> set[int]:
            settled = await send(*leases, counts=False)
            if not settled.repeated:
                return set(settled.skipped)
            return {seq for seq in settled.skipped if not await was_done(seq)}

        outcomes = await self._each(job_ids, settle)
        settled = set()
        for at, job_id in enumerate(job_ids):
            if job_id in settled:
                outcomes[at] = JobNotFoundError(job_id)
            elif outcomes[at] is None:
                settled.add(job_id)
        return outcomes

    async def _each(self, job_ids: Sequence[str], send: Callable[..., Coroutine[Any, Any, set[int]]]) -> list[Outcome]:
        """The outcome for each job, from the skipped seqs that `send` returns."""
        leases: dict[str, models.Lease] = {}
        for job_id in job_ids:
            with suppress(JobNotFoundError):
                leases[job_id] = self.known(job_id).lease
        skipped: set[int] = set()
        if leases:
            try:
                skipped = await send(*leases.values())
            except TopicNotFound:
                skipped = {lease.seq for lease in leases.values()}
            except HoldfastError as error:
                return [self._stored("settle", error) for _ in job_ids]
        outcomes: list[Outcome] = []
        for job_id in job_ids:
            lease = leases.get(job_id)
            if lease is not None and lease.seq not in skipped:
                outcomes.append(None)
            else:
                outcomes.append(LeaseLost(job_id) if lease and lease.lease_id else JobNotFoundError(job_id))
        return outcomes

    def _claimed_job(self, job: models.ClaimedJob, payload: bytes) -> Job:
        return Job(
            id=str(job.seq),
            entrypoint=job.tag or job.tenant or "",
            payload=payload,
            status=JobStatus.IN_PROGRESS,
            priority=_priority(job.meta),
            created_at=job.enqueued_at,
            heartbeat_at=job.deadline - timedelta(milliseconds=self.lease_ms),
            deliveries=job.deliveries,
            lease_id=job.lease_id,
        )

    def _job_of(self, job: models.Job, payload: bytes) -> Job:
        status = {"leased": JobStatus.IN_PROGRESS, "failed": JobStatus.DEAD}.get(job.state, JobStatus.QUEUED)
        beat = None
        if status is JobStatus.IN_PROGRESS and job.visible_at is not None:
            beat = job.visible_at - timedelta(milliseconds=self.lease_ms)
            if job.leased_at is not None:  # the lease may be shorter than this queue's
                beat = max(beat, job.leased_at)
        return Job(
            id=str(job.seq),
            entrypoint=job.tag or job.tenant,
            payload=payload,
            status=status,
            priority=job.priority,
            created_at=job.created_at,
            heartbeat_at=beat,
            deliveries=job.deliveries,
        )

    def _stored(self, verb: str, error: HoldfastError) -> StorageError:
        why = StorageError(f"{verb} on {self._topic.name}", error)
        why.__cause__ = error
        return why


def record_of(put: Put) -> models.Record:
    """A job as a record. The entrypoint is its tag and tenant."""
    return models.Record(
        data=put.payload,
        tag=put.entrypoint,
        tenant=put.entrypoint,
        priority=put.priority,
        meta={**put.trace, **({PRIORITY: put.priority} if put.priority else {})} or None,
    )


def _priority(meta: Any) -> int:
    given = (meta or {}).get(PRIORITY, 0)
    return given if isinstance(given, int) else 0


def _concerns_one(error: Exception) -> bool:
    """Whether the error may be caused by one record of a batch."""
    if isinstance(error, APIStatusError):
        return error.status in (400, 413, 422)
    return isinstance(error, (ValueError, ObjectError))
