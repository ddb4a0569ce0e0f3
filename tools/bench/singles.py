"""Requests of one job each, and the jobs that they need to be there first."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import msgspec

from tools.bench.arrivals import Step
from tools.bench.load import ACK, CLAIM, data_of

VERBS: Final = ("enqueue", "claim", "ack", "cycle")
FILL: Final = 1000  # jobs a request, while jobs are prepared
NODE: Final = b'{"node":"bench","lease_ms":3600000'

COUNTED: Final = b'"count":1,'
ACKED: Final = b'"acked":1,'


class _Job(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    lease_id: str


class _Claimed(msgspec.Struct):
    claimed: list[_Job]


_claimed = msgspec.json.Decoder(_Claimed)


def request(path: str, body: bytes) -> bytes:
    """A POST as it goes over the wire."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


@dataclass(frozen=True, slots=True)
class _Claim:
    """After an enqueue: claim one. There is one at once, as the same process took it in (semantics, section 4)."""

    path: str

    def __call__(self, _: bytes) -> bytes:
        return request(f"{self.path}/{CLAIM}", NODE + b"}")


@dataclass(frozen=True, slots=True)
class _Ack:
    """After a claim: ack the job that it answered with."""

    path: str

    def __call__(self, claimed: bytes) -> bytes:
        return _acks(self.path, claimed)[0]


def _acks(path: str, claimed: bytes) -> list[bytes]:
    body = b'{"node":"bench","seqs":[%d],"lease_ids":["%b"]}'
    return [
        request(f"{path}/{ACK}", body % (job.seq, job.lease_id.encode())) for job in _claimed.decode(claimed).claimed
    ]


def prepare(verb: str, port: int, topic: str, payload: int, count: int) -> tuple[Sequence[bytes], Sequence[Step]]:
    """The requests and steps of a verb, for `count` arrivals at most; the jobs they need are in the topic then."""
    path = f"/v0/topics/{topic}"
    enqueues = [request(path, b'{"records":[{"data":%b}]}' % data_of(payload).encode()) for _ in range(50)]
    match verb:
        case "enqueue":
            return enqueues, [Step(COUNTED)]
        case "claim":
            _fill(port, path, payload, count)
            return [request(f"{path}/{CLAIM}", NODE + b"}")], [Step(COUNTED)]
        case "ack":
            _fill(port, path, payload, count)
            return _take(port, path, count), [Step(ACKED)]
        case "cycle":
            return enqueues, [Step(COUNTED, _Claim(path)), Step(COUNTED, _Ack(path)), Step(ACKED)]
        case _:
            raise ValueError(f"no such verb: {verb}")


def _fill(port: int, path: str, payload: int, count: int) -> None:
    body = b'{"records":[' + b",".join(b'{"data":%b}' % data_of(payload).encode() for _ in range(FILL)) + b"]}"
    _post(port, path, [body] * -(-count // FILL))


def _take(port: int, path: str, count: int) -> list[bytes]:
    answers = _post(port, f"{path}/claim", [NODE + b',"max":%d}' % FILL] * -(-count // FILL))
    return [ack for answer in answers for ack in _acks(path, answer)]


def _post(port: int, path: str, bodies: Sequence[bytes]) -> list[bytes]:
    answers = []
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for body in bodies:
            connection.request("POST", path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            answers.append(response.read())
            if response.status >= 300:
                raise RuntimeError(f"{path}: {response.status} {answers[-1][:300]!r}")
    return answers
