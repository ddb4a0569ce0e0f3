"""What `holdfast worker tests.sdk.worker_program:queue` runs in tests, and handlers that other processes find here."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from holdfast import AsyncContext, Queue, Result, SyncContext

queue = Queue()


@queue.handler(os.environ.get("HOLDFAST_TEST_TOPIC", "none"), concurrency=20)
async def slow(_: Any, context: AsyncContext) -> Result:
    await asyncio.sleep(0.05)
    return Result(context.received_count)


def whose_process(_: Any) -> Result:
    return Result(os.getpid())


def pill(what: str) -> Result:
    """Does what the payload says to the process that it is in."""
    match what:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "take memory":
            bytearray(500 * 1024 * 1024)
        case "take time":
            time.sleep(60)
        case "keep the lock":
            re.match("(a*)*b", "a" * 60)
        case "leave":
            sys.exit(3)
        case "cancel":
            raise asyncio.CancelledError
    return Result("harmless")


def neighbour(job: list[str], context: SyncContext) -> Result:
    """Wait in a pool for the other one; then the killer kills its process. Alone the killer does the same; a second
    delivery does no harm."""
    folder, name, other = job
    alone = multiprocessing.current_process().name.startswith("holdfast-")
    if context.received_count == 1:
        Path(folder, name).touch()
        while not Path(folder, other).exists():
            time.sleep(0.01)
        if name == "killer":
            os.kill(os.getpid(), signal.SIGKILL)
    return Result([context.received_count, "alone" if alone else "in the pool"])


class Pickled:
    """A text, which is slow to be pickled."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        self.begun.set()
        self.go_on.wait(30)
        return str, (self.text,)
