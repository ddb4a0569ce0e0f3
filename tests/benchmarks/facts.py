"""What a figure can't be read without: when, of what, on which machine, against which PostgreSQL."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import asyncpg

from tests.benchmarks.bench import Bench

ROOT = Path(__file__).parents[2]


async def facts(bench: Bench) -> dict[str, object]:
    """Of this run, for its head line and its JSON."""
    connection = await asyncpg.connect(bench.url)
    try:
        server = await connection.fetchval("SHOW server_version")
        fsync = await connection.fetchval("SHOW fsync")
    finally:
        await connection.close()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short", "HEAD") or "unknown",
        "dirty": bool(_git("status", "--porcelain")),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "postgres": server,
        "fsync": fsync,
        "payload": bench.payload,
    }


def _git(*words: str) -> str:
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.strip()
