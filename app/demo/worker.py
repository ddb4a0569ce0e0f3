"""A worker process of the demo: python -m app.demo.worker, with its task as a line of JSON on stdin.

It claims jobs, works them out, writes the results down, and only then acks: whoever kills it loses no result. It ends
when its stdin closes, so it does not outlive the demo.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from app.demo import files
from app.demo.client import Client, Refused
from app.demo.journal import Task, Writer

WAIT_MS: Final = 1000
HANG_SECONDS: Final = 20.0


class DemoWorker:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._client = Client(task.url, task.key)
        self._journal = Writer(Path(task.journal))
        self._hang_at = task.hang_at

    def connect(self) -> None:
        """Open the connection, and say that it is there."""
        self._client.call("GET", f"/v0/topics/{self._task.topic}")
        self._journal.write({"ready": True})

    def run(self) -> None:
        while answer := self._verb("claim", max=self._task.batch, wait_ms=WAIT_MS, lease_ms=self._task.lease_ms):
            if answer["claimed"]:
                self._batch(answer["claimed"], answer["ready"])

    def _batch(self, jobs: list[dict[str, Any]], ready: int) -> None:
        held = {"seqs": [job["$seq"] for job in jobs], "lease_ids": [job["lease_id"] for job in jobs]}
        next_beat = time.monotonic() + self._task.lease_ms / 3000
        self._journal.write({"claimed": [job["deliveries"] for job in jobs]})

        def beat() -> None:
            nonlocal next_beat
            if time.monotonic() >= next_beat:
                self._verb("extend", lease_ms=self._task.lease_ms, **held)
                next_beat = time.monotonic() + self._task.lease_ms / 3000

        for place, job in enumerate(jobs):
            if place == len(jobs) // 2 and self._hang_at is not None and ready <= self._hang_at:
                self._hang_at = None
                self._journal.write({"hangs": len(jobs)})
                time.sleep(HANG_SECONDS)
            self._journal.write(self._result(job, beat))
            beat()
        answer = self._verb("ack", **held)
        self._journal.write({"acked": answer["acked"], "skipped": len(answer["skipped"])})

    def _result(self, job: dict[str, Any], beat: Any) -> dict[str, Any]:
        path = job["data"]["path"]
        result = {"path": path, "seq": job["$seq"], "deliveries": job["deliveries"]}
        try:
            return result | {"digest": files.digest(Path(self._task.folder, path), beat)}
        except OSError as error:
            return result | {"error": error.strerror}

    def _verb(self, verb: str, **fields: object) -> dict[str, Any]:
        return self._client.call("POST", f"/v0/topics/{self._task.topic}/{verb}", {"node": self._task.node, **fields})


def main() -> int:
    task = Task(**json.loads(sys.stdin.readline()))
    worker = DemoWorker(task)
    try:
        worker.connect()
        if not sys.stdin.readline():  # the word to go
            return 0
        threading.Thread(target=_end_with_stdin, daemon=True).start()
        worker.run()
    except Refused as error:
        print(f"{task.node}: {error}", file=sys.stderr)
        return 1
    return 0


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)  # at once, also out of a claim that waits; what it still holds comes back when the lease ends


if __name__ == "__main__":
    sys.exit(main())
