"""What load generators do: closed loops over many connections. Each runs in a process of its own (Bench.drive)."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from tools.bench.client import Script, connect, play, post

LEASE_MS = 3_600_000  # longer than any round
NODE = "bench"
CLAIM = "claim?return_counts=false"  # as the SDK's worker asks
ACK = "ack?return_counts=false"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How much was done in how many seconds: requests, or jobs. `answers` were kept if that was asked for; `course`
    has a point (done so far, after seconds) every so many jobs."""

    count: int
    seconds: float
    answers: list[bytes] = field(default_factory=list)
    course: list[tuple[int, float]] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """A second."""
        return self.count / self.seconds


@dataclass(frozen=True, slots=True)
class Posts:
    """POST `bodies` to `path`: each once; with `requests`, so many in turn; with `seconds`, in turn for so long."""

    ports: Sequence[int]
    path: str
    bodies: Sequence[bytes]
    clients: int
    requests: int | None = None
    seconds: float | None = None
    keep: bool = False

    async def run(self) -> Outcome:
        made = [post(self.path, body) for body in self.bodies]
        answers: list[bytes] = []
        count = 0

        def script(requests: Iterator[bytes]) -> Script:
            nonlocal count
            for request in requests:
                answer = yield request
                count += 1
                if self.keep:
                    answers.append(answer)

        shared = self._requests(made)
        connections = await connect(self.ports, [script(shared) for _ in range(self.clients)])
        began = time.perf_counter()
        await play(connections)
        return Outcome(count, time.perf_counter() - began, answers)

    def _requests(self, made: list[bytes]) -> Iterator[bytes]:
        if self.seconds is None:
            yield from itertools.islice(itertools.cycle(made), len(made) if self.requests is None else self.requests)
            return
        until = time.perf_counter() + self.seconds  # from the first request on
        yield from itertools.takewhile(lambda _: time.perf_counter() < until, itertools.cycle(made))


@dataclass(frozen=True, slots=True)
class Consume:
    """Claim `jobs` jobs in all, `most` a request. With `ack` each claim is followed by its ack and both count; without,
    what was claimed is acked after the clock has stopped. Raises RuntimeError when there are fewer."""

    ports: Sequence[int]
    topic: str
    clients: int
    jobs: int
    most: int
    ack: bool
    step: int = 20_000  # jobs between two points of the course

    async def run(self) -> Outcome:
        claim = post(f"/v0/topics/{self.topic}/{CLAIM}", claim_body(self.most))
        path = f"/v0/topics/{self.topic}/{ACK}"
        taken = asked = done = 0
        course: list[tuple[int, float]] = []
        held: list[bytes] = []

        def script() -> Script:
            nonlocal taken, asked, done
            while taken + asked < self.jobs:
                asked += self.most
                count, ack = ack_body((yield claim))
                asked -= self.most
                taken += count
                if count == 0:
                    raise RuntimeError(f"nothing to claim in {self.topic} after {taken} of {self.jobs} jobs")
                if self.ack:
                    yield post(path, ack)
                else:
                    held.append(ack)
                done += count
                if done >= self.step * (len(course) + 1):
                    course.append((done, time.perf_counter() - began))

        connections = await connect(self.ports, [script() for _ in range(self.clients)])
        began = time.perf_counter()
        await play(connections)
        outcome = Outcome(taken, time.perf_counter() - began, course=course)
        if held:
            await Posts(self.ports, path, held, self.clients).run()
        return outcome


class _Claimed(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    lease_id: str


class _Claims(msgspec.Struct):
    claimed: list[_Claimed]


_claims = msgspec.json.Decoder(_Claims)
_encode = msgspec.json.Encoder().encode


def claim_body(most: int, wait_ms: int = 0, lease_ms: int = LEASE_MS) -> bytes:
    """Of a claim."""
    return _encode({"node": NODE, "max": most, "lease_ms": lease_ms, "wait_ms": wait_ms})


def ack_body(answer: bytes) -> tuple[int, bytes]:
    """How many jobs a claim's answer has, and the body that acks them all."""
    jobs = _claims.decode(answer).claimed
    seqs, leases = [job.seq for job in jobs], [job.lease_id for job in jobs]
    return len(jobs), _encode({"node": NODE, "seqs": seqs, "lease_ids": leases})


def data_of(size: int) -> str:
    """JSON of so many bytes, but 30 at least, most of them random."""
    return json.dumps({"id": os.urandom(4).hex(), "text": os.urandom(size).hex()[: max(size - 30, 0)]})


def records_body(texts: Sequence[str]) -> bytes:
    """Of an enqueue."""
    return b'{"records":[%b]}' % b",".join(b'{"data":%b}' % text.encode() for text in texts)
