"""What a figure can't be read without: when, of what, on which machine, against which PostgreSQL."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from app.kernel.model import Connection
from tools.bench.bench import Bench

ROOT = Path(__file__).parents[2]


async def facts(bench: Bench) -> dict[str, object]:
    """Of this run, for its head line and its JSON."""
    return await facts_of(bench.db, bench.payload)


async def facts_of(database: Connection, payload: int) -> dict[str, object]:
    """The same of a run on this database, with so many bytes of data in a job."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short", "HEAD") or "unknown",
        "dirty": bool(_git("status", "--porcelain")),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "cpu": _cpu(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "postgres": await database.fetchval("SHOW server_version"),
        "shared_buffers": await database.fetchval("SHOW shared_buffers"),
        "fsync": await database.fetchval("SHOW fsync"),
        "synchronous_commit": await database.fetchval("SHOW synchronous_commit"),
        "payload": payload,
    }


def _git(*words: str) -> str:
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
