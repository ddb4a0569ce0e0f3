"""What a run takes of the machine, at one moment: for the slopes of a long one."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

from tools.chaos.system import System

MIB = 1024 * 1024
STEPS = 2_000_000
STEPS_SECONDS = 0.065  # how long they take on the machine that bounds of time are for
SLOWEST = 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    """`rss_mib` and `fds` of the service's processes together; its `backends`, and its tables with their indexes, in
    all, and those of `jobs`; `dead_rows` of jobs; `wal_mib` written since the cluster was made. `jobs`: how many rows
    were put into that table since the server last crashed."""

    at: float
    rss_mib: float
    fds: int
    backends: int
    tables_mib: float
    hot_mib: float
    dead_rows: int
    wal_mib: float
    jobs: int


def slowness() -> float:
    """How many times as long as on that machine the same work takes here now: 1 to SLOWEST. Reports have both the bound
    and what was allowed: docs/reliability.md promises the bound."""
    took = []
    for _ in range(3):
        began = time.perf_counter()
        count = 0
        for step in range(STEPS):
            count += step
        took.append(time.perf_counter() - began)
    return min(max(min(took) / STEPS_SECONDS, 1.0), SLOWEST)


async def sample(system: System) -> Sample:
    """Raises what the database's being away does."""
    rss, fds = 0.0, 0
    for api in system.apis.values():
        pid = api.pid()
        with suppress(psutil.NoSuchProcess):
            if pid is not None:
                process = psutil.Process(pid)
                rss += process.memory_info().rss / MIB
                fds += process.num_fds()
    database = await system.connect()
    try:
        row = await database.fetchrow(
            """
            SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast') AS backends,
                   (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
                    WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r') AS bytes,
                   pg_total_relation_size('holdfast.jobs') AS hot,
                   pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS wal, s.n_dead_tup AS dead, s.n_tup_ins AS jobs
            FROM pg_stat_user_tables s WHERE s.relid = 'holdfast.jobs'::regclass
            """
        )
    finally:
        await database.close()
    assert row is not None
    tables, hot, wal = (round(float(row[name]) / MIB, 2) for name in ("bytes", "hot", "wal"))
    return Sample(time.time(), round(rss, 1), fds, row["backends"], tables, hot, row["dead"], wal, row["jobs"])


def slope(samples: list[tuple[float, float]]) -> float:
    """By least squares, of pairs of seconds and values: how much more an hour."""
    if len(samples) < 2:
        return 0.0
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return 3600 * sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0
