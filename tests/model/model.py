"""What one queue does, in plain Python: docs/semantics.md, sections 1 to 4, 7, 10 and 14.

Time goes on between the model and the database. So whether a moment has passed during a call has three answers: True,
False, and None for a moment that lies within the call. Then either outcome is right, and the model follows the answer.
Times are in µs since 1970, by the database's clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from app.kernel import model as queue

Maybe: TypeAlias = bool | None
DUE = ("leased", "scheduled")
LIVE = ("ready", *DUE)
PENDING = ("ready", "scheduled")
ROUNDING = 1_000  # answers give deadlines in ms


@dataclass(frozen=True, slots=True)
class Span:
    """The database's clock before a call and after it."""

    begin: int
    end: int

    def passed(self, at: int) -> Maybe:
        """Whether a moment was over when the call looked."""
        return True if at < self.begin else False if at > self.end else None

    def after(self, ms: int, at: int) -> bool:
        """Whether `at` is a moment of the call plus so many ms."""
        return self.begin + ms * 1000 <= at <= self.end + ms * 1000


@dataclass(frozen=True, slots=True)
class Row:
    """A job as the table holds it."""

    seq: int
    state: str
    priority: int
    visible_at: int
    expires_at: int | None
    deliveries: int
    lease: str | None
    node: str | None
    error: str | None
    payload: bytes
    key: str | None
    updated: int = field(compare=False)  # of a job with a key, when it was given its payload
    origin: tuple[str, int, int] | None  # topic, seq and deliveries there


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What stays of a job that went to the dead letters; `origin` as in Row."""

    payload: bytes
    priority: int
    error: str | None
    origin: tuple[str, int, int] | None


@dataclass(frozen=True, slots=True)
class Limits:
    """How deliveries end: out to the dead letters or failed after so many (0 for never), or not at all."""

    on_exhausted: str = "redeliver"
    max_deliveries: int = 0


@dataclass(slots=True)
class Job:
    """A job that is in the table; failed and expired ones stay there."""

    seq: int
    payload: bytes
    priority: int
    own_limit: int | None
    state: str
    visible_at: int
    expires_at: int | None
    deliveries: int = 0
    lease: str | None = None
    node: str | None = None
    error: str | None = None
    key: str | None = None
    updated: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """How many, at least and at most."""

    least: int
    most: int

    def holds(self, count: int) -> bool:
        return self.least <= count <= self.most


def both(one: Maybe, other: Maybe) -> Maybe:
    if one is False or other is False:
        return False
    return True if one and other else None


def opposite(one: Maybe) -> Maybe:
    return None if one is None else not one


@dataclass(slots=True)
class Queue:
    """One topic from its creation to its deletion."""

    name: str
    limits: Limits
    jobs: dict[int, Job] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)  # acked, dead_lettered, superseded or deleted
    enqueued: int = 0
    head: int = 0  # the last seq that a job was given
    unused: int = 0  # seqs since then that were drawn, perhaps, for jobs with keys that were there already
    dead: list[DeadLetter] = field(default_factory=list)
    leases: set[str] = field(default_factory=set)  # every one ever given

    def exhausted(self, job: Job) -> bool:
        limit = self.limits.max_deliveries if job.own_limit is None else job.own_limit
        return self.limits.on_exhausted != "redeliver" and 0 < limit <= job.deliveries

    def due(self, job: Job, span: Span) -> Maybe:
        """Whether nobody holds the job and its delay is over."""
        return job.state == "ready" or (job.state in DUE and span.passed(job.visible_at))

    def outlived(self, job: Job, span: Span) -> Maybe:
        return False if job.expires_at is None else span.passed(job.expires_at)

    def claimable(self, job: Job, span: Span) -> Maybe:
        if job.state in DUE and self.exhausted(job):
            return False
        return both(self.due(job, span), opposite(self.outlived(job, span)))

    def expirable(self, job: Job, span: Span) -> Maybe:
        """A good lease shields its job."""
        if job.state not in LIVE:
            return False
        return both(self.outlived(job, span), job.state != "leased" or self.due(job, span))

    def spent(self, job: Job, span: Span) -> Maybe:
        """Whether its last delivery has ended in silence."""
        return job.state in DUE and self.exhausted(job) and self.due(job, span)

    def held(self, job: Job, span: Span) -> Maybe:
        return job.state == "leased" and opposite(span.passed(job.visible_at))

    def holds(self, held: queue.HeldJob, span: Span) -> Maybe:
        job = self.jobs.get(held.seq)
        if job is None or (held.lease is not None and held.lease.hex != job.lease):
            return False
        return (held.node is None or held.node == job.node) and self.held(job, span)

    def count(self, span: Span) -> tuple[Range, Range, Range]:
        """Ready jobs, leases that are good, and jobs that a topic's state counts."""
        ready, in_flight, live = Counter[Maybe](), Counter[Maybe](), Counter[Maybe]()
        for job in self.jobs.values():
            ready[self.claimable(job, span)] += 1
            in_flight[self.held(job, span)] += 1
            live[job.state in LIVE and opposite(self.expirable(job, span))] += 1
        one, two, three = (Range(n[True], n[True] + n[None]) for n in (ready, in_flight, live))
        return one, two, three

    def horizon(self, most: int) -> int:
        """The last moment up to `most` at which something ends by itself."""
        ends = [job.visible_at for job in self.jobs.values() if job.state in DUE]
        ends += [job.expires_at for job in self.jobs.values() if job.expires_at is not None and job.state in LIVE]
        return max((end for end in ends if end <= most), default=0)

    def expected(self) -> dict[int, Row]:
        """The table."""
        return {
            job.seq: Row(
                job.seq, job.state, job.priority, job.visible_at, job.expires_at, job.deliveries, job.lease, job.node,
                job.error, job.payload, job.key, job.updated, None,
            )
            for job in self.jobs.values()
        }  # fmt: skip

    def finals(self) -> Iterator[tuple[int, str]]:
        """Where each job ever enqueued is: what the ledger must lead to. It does not tell a delayed job from a ready
        one that was never delivered."""
        yield from self.gone.items()
        for seq, job in self.jobs.items():
            yield seq, "waiting" if job.state in ("ready", "scheduled") else job.state

    # What happens.

    def add(self, seqs: Sequence[int], records: queue.Batch, rows: Mapping[int, Row], span: Span) -> None:
        assert list(seqs) == list(range(seqs[0], seqs[0] + len(records))), "seqs ascend"
        self._drew(seqs[0], seqs[-1])
        self.enqueued += len(seqs)
        for i, seq in enumerate(seqs):
            delay, ttl, row = records.delays_ms[i], records.ttls_ms[i], rows[seq]
            assert span.after(delay or 0, row.visible_at), "the delay counts from the call"
            if ttl:
                assert row.expires_at is not None
                assert span.after(ttl, row.expires_at), "the time to live counts from the call"
            self.jobs[seq] = Job(
                seq, records.payloads[i], records.priorities[i] or 0, records.max_deliveries[i],
                "scheduled" if delay else "ready", row.visible_at, row.expires_at if ttl else None,
            )  # fmt: skip

    def put(self, seq: int, updated: bool, records: queue.Batch, rows: Mapping[int, Row], span: Span) -> None:
        """One record with a key, written into the job that waits, or one whose lease has ended, or a new one."""
        [key], [payload], row = records.keys, records.payloads, rows[seq]
        assert key is not None
        pending = self._pending(key, rows, span)
        if pending is not None:
            assert (seq, updated) == (pending.seq, True), "what waits is updated in place"
        elif updated:
            job, free = self.jobs[seq], self._given_up(key, span)
            assert free.get(seq, False) is not False, (
                "one whose lease is good, or that is on its way out, is left alone"
            )
            newer = [other for other, sure in free.items() if sure and self._age(other) > self._age(seq)]
            assert not newer, f"of those whose lease has ended, the newest: {newer}"
            job.state, job.lease, job.node, job.visible_at = "scheduled", None, None, row.visible_at
            assert span.after(0, job.visible_at), "it can be claimed at once"
        else:
            assert True not in self._given_up(key, span).values(), "one whose lease has ended is updated"
            self.add([seq], records, rows, span)
            self.jobs[seq].key = key
        self.unused += updated
        self.jobs[seq].payload, self.jobs[seq].updated = payload, row.updated
        assert span.after(0, row.updated)

    def claim(
        self,
        answer: Sequence[queue.Job],
        rows: Mapping[int, Row],
        span: Span,
        *,
        node: str,
        most: int,
        lease_ms: int,
        glances: bool,
    ) -> None:
        """`glances`: the claim followed so closely on another that it may not have looked for jobs whose time has come
        as long as there were fresh ones (docs/semantics.md, section 4)."""
        seqs = [given.seq for given in answer]
        assert len(set(seqs)) == len(seqs) <= most
        claimable = {seq: self.claimable(job, span) for seq, job in self.jobs.items()}
        wrong = [seq for seq in seqs if claimable.get(seq, False) is False]
        assert not wrong, f"claimed, but not claimable: {wrong}"

        ranks = {seq: rank(job) for seq, job in self.jobs.items()}
        late = {seq for seq, job in self.jobs.items() if glances and job.state in DUE}
        sure = [seq for seq in seqs if claimable[seq] and seq not in late]
        assert sure == sorted(sure, key=ranks.__getitem__), "in claim order"
        missed = [seq for seq, can in claimable.items() if can and seq not in seqs]
        if len(seqs) == most:
            last = max(ranks[seq] for seq in seqs)
            missed = [seq for seq in missed if seq not in late and ranks[seq] < last]
        assert not missed, f"passed over: {missed}"

        # What was met on the way without a delivery left is out, not only hidden.
        must = [seq for seq, job in self.jobs.items() if self.spent(job, span)]
        if len(seqs) == most:
            last = max((ranks[seq] for seq in sure), default=min(ranks.values()))
            must = [seq for seq in must if seq not in late and ranks[seq] < last]
        for given in answer:
            job, row = self.jobs[given.seq], rows.get(given.seq)
            job.state, job.deliveries, job.lease, job.node = "leased", job.deliveries + 1, given.lease, node
            assert given.deliveries == job.deliveries, "a claim is one delivery"
            assert given.lease not in self.leases, "a lease id is new"
            self.leases.add(given.lease)
            assert given.payload == job.payload
            # Where it is gone, its lease has ended since, and the claim has met it again, without a delivery left.
            job.visible_at = self._ends(row, span, lease_ms, given.deadline_ms) if row else given.deadline_ms * 1000
        self.exits(rows, span, must)

    def ack(self, seq: int) -> None:
        del self.jobs[seq]
        self.gone[seq] = "acked"

    def nack(self, seq: int, rows: Mapping[int, Row], span: Span, delay_ms: int, error: str | None) -> None:
        """The holder's return. With the last delivery, the job is out at once."""
        job = self.jobs[seq]
        job.error = job.error if error is None else error
        if self.exhausted(job):
            self._take_out(job)
            return
        if job.key is not None and self._gives_way(job, rows, span):
            return
        job.state, job.lease, job.node = "scheduled", None, None
        if job.key is None or seq in rows:  # else a later one of the call has superseded it
            assert seq in rows, "returned, and gone"
            job.visible_at = rows[seq].visible_at
            assert span.after(delay_ms, job.visible_at), "the delay counts from the call"

    def supersede(self, rows: Mapping[int, Row], span: Span) -> None:
        """The sweep: of one whose lease ended in silence and one of its key that waits, the older one ends."""
        ends: dict[int, bool] = {}  # by seq: whether it must, rather than may
        for waiting in [job for job in self.jobs.values() if job.key is not None and job.state in PENDING]:
            assert waiting.key is not None
            for seq, free in self._given_up(waiting.key, span).items():
                can = both(free, opposite(self.outlived(waiting, span)))
                older = seq if waiting.updated >= self.jobs[seq].updated else waiting.seq
                if can is not False:
                    ends[older] = ends.get(older, False) or can is True
        for seq, must in ends.items():
            assert seq not in rows or not must, f"{seq} is older, and still in"
            if seq not in rows:
                self._end(seq)

    def extend(self, seq: int, row: Row, span: Span, lease_ms: int, deadline_ms: int) -> None:
        self.jobs[seq].visible_at = self._ends(row, span, lease_ms, deadline_ms)

    def exits(self, rows: Mapping[int, Row], span: Span, must: Sequence[int]) -> None:
        """Follow jobs out that have no delivery or no time left. `must`: those that have to be out by now."""
        for job in list(self.jobs.values()):
            row = rows.get(job.seq)
            if job.state not in LIVE or (row is not None and row.state in LIVE):
                assert job.seq not in must, f"{job.seq} is still in"
            elif row is not None and row.state == "expired":
                assert self.expirable(job, span) is not False, f"{job.seq} expired before its time"
                job.state, job.lease, job.node = "expired", None, None
            else:
                assert self.spent(job, span) is not False, f"{job.seq} went without a reason"
                self._take_out(job)

    def delete(self) -> None:
        """The topic ends, and everything in it."""
        self.gone.update(dict.fromkeys(self.jobs, "deleted"))
        self.jobs.clear()

    def _drew(self, first: int, last: int) -> None:
        assert self.head < first <= self.head + 1 + self.unused, "seqs ascend from 1"
        self.head, self.unused = last, 0

    def _age(self, seq: int) -> tuple[int, int]:
        return self.jobs[seq].updated, seq

    def _pending(self, key: str, rows: Mapping[int, Row], span: Span) -> Job | None:
        """The one of a key that waits; if it has outlived its time, whoever looks marks it as expired."""
        for job in self.jobs.values():
            if job.key == key and job.state in PENDING:
                over = self.outlived(job, span)
                if over is None:
                    over = job.seq in rows and rows[job.seq].state == "expired"
                if not over:
                    return job
                job.state = "expired"
        return None

    def _given_up(self, key: str, span: Span) -> dict[int, Maybe]:
        """Those of a key whose lease has ended, as far as it has, and that will be delivered again."""
        return {
            job.seq: self.claimable(job, span) for job in self.jobs.values() if job.key == key and job.state == "leased"
        }

    def _gives_way(self, job: Job, rows: Mapping[int, Row], span: Span) -> bool:
        """Of one that is returned and one of its key that waits, the newer lives on: whether that is the other."""
        assert job.key is not None
        waiting = self._pending(job.key, rows, span)
        if waiting is None:
            return False
        loses: Maybe = waiting.updated >= job.updated or self.outlived(job, span)
        if loses is None:
            loses = job.seq not in rows
        self._end(job.seq if loses else waiting.seq)
        return bool(loses)

    def _end(self, seq: int) -> None:
        del self.jobs[seq]
        self.gone[seq] = "superseded"

    def _take_out(self, job: Job) -> None:
        if self.limits.on_exhausted == "fail":
            job.state, job.lease, job.node = "failed", None, None
            return
        del self.jobs[job.seq]
        self.gone[job.seq] = "dead_lettered"
        self.dead.append(DeadLetter(job.payload, job.priority, job.error, (self.name, job.seq, job.deliveries)))

    @staticmethod
    def _ends(row: Row, span: Span, lease_ms: int, deadline_ms: int) -> int:
        assert span.after(lease_ms, row.visible_at), "the lease counts from the call"
        assert abs(row.visible_at - deadline_ms * 1000) < ROUNDING, "the deadline is the one that was answered"
        return row.visible_at


def rank(job: Job) -> tuple[int, int, int]:
    """A job's place in claim order: by priority, high first; then what is due, by its time; then by position."""
    return (-job.priority, 0, job.visible_at) if job.state in DUE else (-job.priority, 1, job.seq)
