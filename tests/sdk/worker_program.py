"""Handlers that other processes find here."""

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

import psycopg

from holdfast import Result, SyncContext, sql, sync_context


def in_a_process(url: str) -> Result | None:
    """What the job is and where it runs; with a database, the job is completed there."""
    context = sync_context()
    if not url:
        return Result([context.job_id, context.received_count, os.getpid()])
    with psycopg.connect(url) as connection:
        connection.execute(*sql.complete(context.token, result="by psycopg").psycopg)
    return None


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
