"""Logging: one line an event on stderr, with the time in UTC."""

from __future__ import annotations

import logging
import sys
import time


def configure(level: str) -> None:
    """Send all loggers of the process to stderr. Request lines are not logged; failures are."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # A lost connection is answered with 503 and said once, where it is met; asyncpg adds a traceback for each.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
