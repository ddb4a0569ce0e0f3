"""Logging: one line an event on stderr, with the time in UTC."""

from __future__ import annotations

import logging
import sys
import time


def configure(level: str, speaker: str = "") -> None:
    """Send all loggers of the process to stderr. Request lines are not logged; failures are.

    `speaker` stands before each logger's name, where several processes write to one stderr.
    """
    handler = logging.StreamHandler(sys.stderr)
    source = f"[{speaker}] %(name)s" if speaker else "%(name)s"
    formatter = logging.Formatter(f"%(asctime)s.%(msecs)03dZ %(levelname)s {source}: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # A lost connection is answered with 503 and said once, where it is met; asyncpg adds a traceback for each.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
    # A form that is none is answered with 400: who sends many writes no lines here.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
