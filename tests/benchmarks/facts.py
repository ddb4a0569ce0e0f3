"""What a figure depends on beside the code: the machine, its database, and how busy it was."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime

import asyncpg


async def facts_of(url: str, payload: int) -> dict[str, object]:
    """Facts for a run's JSON. Ask before the run: `load` is the machine's load average of the last minute."""
    connection = await asyncpg.connect(url)
    try:
        server = await connection.fetchval("SHOW server_version")
        fsync = await connection.fetchval("SHOW fsync")
    finally:
        await connection.close()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "taken": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit.stdout.strip() or "unknown",
        "cores": os.cpu_count(),
        "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "postgres": server,
        "fsync": fsync,
        "payload": payload,
        "load": round(os.getloadavg()[0], 2),
    }
