"""What `holdfast worker tests.sdk.worker_program:queue` runs in tests, and handlers that other processes find here."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from holdfast import AsyncContext, Queue, Result

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
    return Result("harmless")
