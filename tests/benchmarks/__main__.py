"""Measure the bars: python -m tests.benchmarks, or make bench."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import asyncpg

from tests.benchmarks.bars import BARS, Figure
from tests.benchmarks.bench import running


def main() -> int:
    """The exit code: 1 if a bar was missed, except with --quick, which only shows that all of them run."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--bar", choices=sorted(BARS), action="append", help="only this one; may be given again")
    parser.add_argument("--quick", action="store_true", help="a short run, without thresholds")
    parser.add_argument("--payload", type=int, default=256, metavar="BYTES", help="size of a job's data (256)")
    parser.add_argument("--url", help="a PostgreSQL to use instead of an embedded one; its schema is upgraded")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and the machine there")
    args = parser.parse_args()
    seconds, rounds = (0.5, 1) if args.quick else (3.0, 3)
    figures, facts = asyncio.run(_measure(args.bar or list(BARS), seconds, rounds, args.payload, args.url))
    print("  ".join(f"{name} {value}" for name, value in facts.items()))
    width = max(len(figure.bar) for figure in figures)
    for figure in figures:
        verdict = "" if args.quick else "  pass" if figure.passed else "  MISSED"
        print(
            f"{figure.bar:{width}}  {figure.rate:>9,.0f} / {figure.base:>9,.0f} {figure.unit}/s"
            f"  = {figure.ratio:.2f}  (at least {figure.least:.2f}){verdict}"
        )
    if args.json:
        shown = [{"bar": f.bar, "rate": f.rate, "base": f.base, "ratio": f.ratio, "least": f.least} for f in figures]
        args.json.write_text(json.dumps({"facts": facts, "figures": shown}, indent=2) + "\n")
    return 0 if args.quick or all(figure.passed for figure in figures) else 1


async def _measure(
    bars: list[str], seconds: float, rounds: int, payload: int, url: str | None
) -> tuple[list[Figure], dict[str, object]]:
    async with running(payload, url) as bench:
        figures = [figure for bar in bars for figure in await BARS[bar](bench, seconds, rounds)]
        return figures, await _facts(bench.url, payload)


async def _facts(url: str, payload: int) -> dict[str, object]:
    connection = await asyncpg.connect(url)
    try:
        server = await connection.fetchval("SHOW server_version")
        fsync = await connection.fetchval("SHOW fsync")
    finally:
        await connection.close()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    return {
        "commit": commit.stdout.strip() or "unknown",
        "cores": os.cpu_count(),
        "memory_gib": memory,
        "kernel": platform.release(),
        "postgres": server,
        "fsync": fsync,
        "payload": payload,
    }


if __name__ == "__main__":
    sys.exit(main())
