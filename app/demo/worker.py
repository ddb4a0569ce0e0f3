"""A worker process of the demo: `python -m app.demo.worker`, with its task as a line of JSON on stdin.

It writes each result to its journal, a file of JSON lines, before the job is acked, so killing it loses no result. It
begins after the next line on stdin, and ends when stdin closes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from app.demo.files import Task, digest_of
from holdfast import HoldfastError, Queue, SyncContext, Worker

HANG_SECONDS: Final = 3_600.0
DAY_SECONDS: Final = 86_400.0


def main() -> int:
    task = Task(**json.loads(sys.stdin.readline()))
    queue, places = Queue(task.url, task.key), itertools.count()
    journal = Path(task.journal).open("ab", buffering=0)  # noqa: SIM115  (to the end of the process)

    def write(line: dict[str, Any]) -> None:
        journal.write(json.dumps(line).encode() + b"\n")

    @queue.handler(task.topic, concurrency=task.batch, timeout=DAY_SECONDS)
    def digest(job: dict[str, Any], context: SyncContext) -> None:
        if not task.hangs or next(places) % 2 == 0:  # a hanging worker computes every second of its jobs first
            result = {"path": job["path"], "seq": context.sequence_number, "deliveries": context.received_count}
            try:
                write(result | {"digest": digest_of(Path(task.folder, job["path"]))})
            except OSError as error:
                write(result | {"error": error.strerror})
        if task.hangs:
            write({"hangs": True})
            time.sleep(HANG_SECONDS)

    write({"node": queue.account.node})
    if not sys.stdin.readline():  # the signal to begin
        return 0
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        asyncio.run(Worker(queue, lease=task.lease_seconds).run(signals=False))
    except HoldfastError as error:
        print(f"{Path(task.journal).stem}: {error}", file=sys.stderr)
        return 1
    return 0


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)  # at once; its jobs are ready again when their leases end


if __name__ == "__main__":
    sys.exit(main())
