"""Lease events as a service makes them: python -m tools.bench.lived --dsn postgresql://… --events 1000000

The service runs as a process of its own on that database, whose schema is upgraded; what it makes stays there.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from tools.bench.bench import running
from tools.bench.mixed_load import MixedLoad

BATCH = 250


async def live(dsn: str, events: int, *, seed: int = 7) -> int:
    """Make about so many events; how many there are now."""
    async with running(256, dsn) as bench:
        load = MixedLoad(f"http://127.0.0.1:{bench.service.port}", batch=BATCH, seed=seed)
        before = await bench.db.fetchval("SELECT count(*) FROM holdfast.lease_events")
        began, shown = time.monotonic(), 0.0

        def progress(made: int) -> None:
            nonlocal shown
            now = time.monotonic()
            if sys.stderr.isatty() or now - shown >= 5 or made >= events:
                shown = now
                rate = made / max(now - began, 0.001)
                line = f"{made:>9,} of {events:,} events, {rate:,.0f}/s"
                print(line, end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)

        await load.run(events, progress)
        took = time.monotonic() - began
        made: int = await bench.db.fetchval("SELECT count(*) FROM holdfast.lease_events") - before
    told = ", ".join(f"{what} {count:,}" for what, count in sorted(load.seen.items()) if what != "seconds")
    print(f"{made:,} events in {took:.0f} s, {made / took:,.0f}/s: {told}", file=sys.stderr)
    return made


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.lived", description=__doc__)
    parser.add_argument("--dsn", required=True, help="a PostgreSQL database that may be written to")
    parser.add_argument("--events", type=int, default=1_000_000, help="about so many (1000000)")
    parser.add_argument("--seed", type=int, default=7, help="another seed is another load (7)")
    args = parser.parse_args(argv)
    asyncio.run(live(args.dsn, args.events, seed=args.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
