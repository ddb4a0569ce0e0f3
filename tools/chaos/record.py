"""The file of a history: a line of JSON when a call is made, and one when it is answered or is known to be in doubt.

    {"op": "sdk0-17", "kind": "invoke", "at": 1795225632925.1, "verb": "ack", "topic": "a", "seqs": [3], "leases": […]}
    {"op": "sdk0-17", "kind": "ok", "at": 1795225632929.7, "skipped": []}

kind is invoke, and then ok (done), fail (refused), or info (in doubt), as Jepsen has it; a call whose process died has
no second line, and stays in doubt. What is no call, a dead letter, an outage, is a line of kind note. Each process
writes a file of its own, line by line, so one that is killed leaves what it knew.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tools.history.history import (
    NEVER,
    Burial,
    Claim,
    Delivery,
    End,
    Enqueue,
    History,
    Outage,
    Outcome,
    Reading,
    Settlement,
    Surprise,
    Topic,
    Verb,
)

Note = Topic | Burial | Reading | Outage | Surprise | End
_OUTCOMES: Final = {"ok": Outcome.DONE, "fail": Outcome.REFUSED, "info": Outcome.IN_DOUBT}
_LISTS: Final = {
    "Topic": (Topic, "topics"),
    "Burial": (Burial, "burials"),
    "Reading": (Reading, "readings"),
    "Outage": (Outage, "outages"),
    "Surprise": (Surprise, "surprises"),
    "End": (End, "ends"),
}


def now() -> float:
    """ms since 1970, of the machine, whatever this process takes for the time."""
    return time.clock_gettime(time.CLOCK_REALTIME) * 1000


def payload(id: int) -> dict[str, Any]:
    """What a job with this id holds."""
    return {"id": id, "text": random.Random(id).randbytes(id % 60).hex()}


class Recorder:
    """Writes one process' file. `who` is unique among them."""

    def __init__(self, folder: Path, who: str) -> None:
        self._file = os.open(folder / f"{who}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._who = who
        self._numbers = itertools.count(1)

    def invoke(self, verb: str, topic: str, **asked: Any) -> str:
        """A call is about to be made. Its name, for what comes of it."""
        op = f"{self._who}-{next(self._numbers)}"
        self._write({"op": op, "kind": "invoke", "at": now(), "verb": verb, "topic": topic, **asked})
        return op

    def end(self, op: str, outcome: Outcome, **answered: Any) -> None:
        kind = next(kind for kind, one in _OUTCOMES.items() if one is outcome)
        self._write({"op": op, "kind": kind, "at": now(), **answered})

    def note(self, what: Note) -> None:
        self._write({"kind": "note", "of": type(what).__name__, "what": asdict(what)})

    def surprise(self, what: str) -> None:
        self.note(Surprise(what, now()))

    def close(self) -> None:
        os.close(self._file)

    def _write(self, line: Mapping[str, Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def outcome_of(status: int) -> Outcome:
    """What an answer's status says."""
    if 200 <= status < 300:
        return Outcome.DONE
    return Outcome.IN_DOUBT if status >= 500 else Outcome.REFUSED


def asked_of(verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a request of the v0 dialect. The verb of an enqueue is ""."""
    match verb:
        case "":
            records: Sequence[Mapping[str, Any]] = body["records"]
            asked: dict[str, Any] = {"ids": [record["data"]["id"] for record in records]}
            if "idempotency_key" in body or all("dedupe_id" in record for record in records):
                asked["unique"] = True
            if all("group" in record for record in records):
                asked["groups"] = [record["group"] for record in records]
            return asked
        case "claim":
            return {"lease_ms": body["lease_ms"], "max": body.get("max", 1)}
        case _:
            kept = ("lease_ms", "delay_ms", "refund")
            more = {name: body[name] for name in kept if body.get(name) is not None}
            return {"seqs": body["seqs"], "leases": body["lease_ids"], **more}


def answered_of(verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The same of an answer that was a success."""
    match verb:
        case "":
            return {"seqs": body["seqs"]}
        case "claim":
            jobs = [
                [job["data"]["id"], job["$seq"], job["lease_id"], job["deliveries"], job["deadline"],
                 job["data"] == payload(job["data"]["id"])]
                for job in body["claimed"]
            ]  # fmt: skip
            return {"jobs": jobs}
        case "extend":
            return {"skipped": body["skipped"], "deadlines": body["deadlines"]}
        case _:
            return {"skipped": body["skipped"]}


def read(folder: Path) -> History:
    """The history that the files of a folder tell. A last line that a kill cut off is no line."""
    history = History()
    open_calls: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in _lines(path):
            match line["kind"]:
                case "invoke":
                    open_calls[line["op"]] = line
                case "note":
                    make, name = _LISTS[line["of"]]
                    getattr(history, name).append(make(**{key: _frozen(one) for key, one in line["what"].items()}))
                case kind:
                    call = open_calls.pop(line["op"])
                    _add(history, call, _OUTCOMES[kind], line["at"], line)
    for call in open_calls.values():
        _add(history, call, Outcome.IN_DOUBT, NEVER, {})
    return history


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _add(history: History, call: Mapping[str, Any], outcome: Outcome, ended: float, answer: Mapping[str, Any]) -> None:
    topic, sent = call["topic"], call["at"]
    match call["verb"]:
        case "":
            history.enqueues.append(
                Enqueue(
                    tuple(call["ids"]),
                    sent,
                    ended,
                    outcome,
                    tuple(answer.get("seqs", ())),
                    topic,
                    call.get("unique", False),
                    tuple(call.get("groups", ())),
                )
            )
        case "claim":
            jobs = answer.get("jobs", ())
            history.claims.append(Claim(sent, ended, outcome, topic, "jobs" in answer and len(jobs) < call["max"]))
            for id, seq, lease, number, deadline, intact in jobs:
                history.deliveries.append(
                    Delivery(id, seq, lease, number, deadline, call["lease_ms"], sent, ended, intact, topic)
                )
        case verb:
            # A worker may hold two leases on one job, and name both: of which one `skipped` speaks, it does not say.
            twice = {seq for seq, times in Counter(call["seqs"]).items() if times > 1}
            skipped, deadlines = set(answer.get("skipped", ())), answer.get("deadlines", {})
            for seq, lease in zip(call["seqs"], call["leases"], strict=True):
                history.settlements.append(
                    Settlement(
                        Verb(verb),
                        seq,
                        lease,
                        sent,
                        ended,
                        Outcome.IN_DOUBT if seq in twice else Outcome.REFUSED if seq in skipped else outcome,
                        deadlines.get(str(seq), 0),
                        topic,
                        call.get("lease_ms", 0),
                        call.get("delay_ms", 0),
                        call.get("refund", False),
                    )
                )
