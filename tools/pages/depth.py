"""A queue with many jobs, and how long pages take that look at it: python -m tools.pages.depth, or make pages.

Every page is asked for one at a time, on an embedded PostgreSQL with fsync on. The first time counts too:
what a page keeps is no help to who opens it first.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import asyncpg
import httpx
from pydantic import SecretStr

from app.base.db import schema
from app.base.db.embedded import EmbeddedPostgres
from app.settings import Settings
from tests.api.dialect import Topic
from tests.conftest import Running

JOBS: Final = 10_000_000
CHUNK: Final = 500_000
BAR_MS: Final = 500.0  # p95 of each page
DEEP, DEAD = "deep", "deep.dead"
KINDS: Final = 40  # of errors
GONE: Final = 90  # dead letters among
SOUGHT: Final = 200  # jobs that all went a way of their own through the service, and have a history
ASKED: Final = 20  # times that each page is asked for

# As enqueue.sql and bury.sql leave them, with their tallies, and one event each, from the beginning of the day to now:
# the ledger is read by when its rows were written. Of ten jobs six are ready, two are scheduled, one has failed and
# stayed, and one is a dead letter: $1, $2 topic, $3, $4 its dead letters, $5, $6 their sequences, $7 how many, $8 how
# many there are, $9 how many there will be.
_FILL: Final = """
WITH made AS MATERIALIZED (
    SELECT n, nextval($5::text::regclass) AS seq, CASE n % 10 WHEN 6 THEN 'scheduled' WHEN 7 THEN 'scheduled'
           WHEN 8 THEN 'failed' WHEN 9 THEN 'dead' ELSE 'ready' END AS state,
           now() - interval '1 hour' * (n % 24) AS at, convert_to('{"order": ' || n || '}', 'UTF8') AS payload,
           'Error' || n / 10 % {kinds} || ': no answer from ' || n AS error
    FROM generate_series(1, $7::integer) n
), kinds AS MATERIALIZED (
    SELECT kind, holdfast.error_cluster('Error' || kind || ': no answer from 1') AS cluster
    FROM generate_series(0, {kinds} - 1) kind
), here AS (
    INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, visible_at, created_at, updated_at, payload, tag,
                               tenant, priority, deliveries, last_error, cluster, failed_in, failed_at)
    SELECT $1, $2::integer, m.seq, m.seq, m.state::holdfast.job_state,
           CASE m.state WHEN 'scheduled' THEN now() + interval '1 day' ELSE m.at END, m.at, m.at, m.payload,
           'tag' || m.n % 100, '', 0, CASE m.state WHEN 'failed' THEN 3 ELSE 0 END,
           CASE m.state WHEN 'failed' THEN m.error END, k.cluster, CASE m.state WHEN 'failed' THEN $1 END,
           CASE m.state WHEN 'failed' THEN m.at END
    FROM made m LEFT JOIN kinds k ON m.state = 'failed' AND k.kind = m.n / 10 % {kinds} WHERE m.state <> 'dead'
), there AS (
    INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, visible_at, created_at, updated_at, payload,
                               last_error, original_topic, original_seq, original_deliveries, dlq_moved_at,
                               first_topic_id, first_seq, original_tenant, cluster, failed_in, failed_at)
    SELECT $3, $4::integer, x.there, x.there, 'ready', x.at, x.at, x.at, x.payload, x.error, $1, x.seq, 3, x.at,
           $2::integer, x.seq, '', k.cluster, $1, x.at
    FROM (SELECT m.*, nextval($6::text::regclass) AS there FROM made m WHERE m.state = 'dead') x
    JOIN kinds k ON k.kind = x.n / 10 % {kinds}
), event AS (
    INSERT INTO holdfast.lease_events (at, topic, topic_id, seq, event, deliveries)
    SELECT d.day + ($8 + m.n) / $9::double precision * (now() - d.day), $1, $2::integer,
           m.seq, CASE m.state WHEN 'failed' THEN 'failed' WHEN 'dead' THEN 'dead_lettered'
           ELSE 'enqueued' END::holdfast.job_event, CASE WHEN m.state IN ('failed', 'dead') THEN 3 ELSE 0 END
    FROM made m CROSS JOIN (SELECT date_trunc('day', now(), 'UTC') AS day) d ORDER BY m.n
)
INSERT INTO holdfast.tallies (topic_id, ready, scheduled, failed, dead_lettered, bytes)
SELECT $2::integer, count(*) FILTER (WHERE state = 'ready'), count(*) FILTER (WHERE state = 'scheduled'),
       count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state = 'dead'),
       coalesce(sum(octet_length(payload)) FILTER (WHERE state <> 'dead'), 0) FROM made
UNION ALL
SELECT $4::integer, count(*), 0, 0, 0, coalesce(sum(octet_length(payload)), 0) FROM made WHERE state = 'dead'
""".replace("{kinds}", str(KINDS))

MOVES: Final = {"hx-target": "live"}  # asks for what moves in a page alone
PAGES: Final = {
    "home": "/",
    "topics": "/topics?sort=worst",
    "topic": f"/topics/{DEEP}",
    "topic, a week": f"/topics/{DEEP}?over=7d",
    "topic of dead letters": f"/topics/{DEAD}",
    "dead letters": f"/topics/{DEEP}/dead",
    "dead letters, one by one": f"/topics/{DEEP}/dead/jobs",
    "dead letters, of a filter that none fits": f"/topics/{DEEP}/dead/jobs?error=nothing+has+this",
    "dead letters, one of them": f"/topics/{DEEP}/dead/jobs?at={DEAD}:100",
    "config": f"/topics/{DEEP}/config",
    "schedules": "/schedules",
    "jobs": f"/topics/{DEEP}/jobs",
    "jobs, scheduled": f"/topics/{DEEP}/jobs?q=state%3Ascheduled",
    "jobs, failed": f"/topics/{DEEP}/jobs?q=state%3Afailed",
    "jobs, of a tag": f"/topics/{DEEP}/jobs?q=tag%3Atag7",
    "jobs, of nobody": f"/topics/{DEEP}/jobs?q=tenant%3Anobody",
    "jobs, of a key": f"/topics/{DEEP}/jobs?q=key%3Anone",
    "jobs, of a payload": f"/topics/{DEEP}/jobs?q=data.order%3A5",
    "jobs, of an error and a priority": f"/topics/{DEEP}/jobs?q=error%3Anothing+priority%3A0",
    "jobs, of a holder": f"/topics/{DEEP}/jobs?q=node%3Anobody",
    "jobs, the oldest from the middle on": f"/topics/{DEEP}/jobs?order=oldest&after=100000",
    "job": f"/topics/{DEEP}/jobs/{10 * SOUGHT}",
    "job, completed": f"/topics/{DEEP}/jobs/1",
    "topic, before an instant is chosen": f"/topics/{DEEP}/asof",
    "horizon": "/horizon",
    "reapers": "/reapers",
    "a reaper": "/reapers/expiry",
    "webhooks": "/webhooks",
    "keys": "/keys",
    "users": "/users",
    "audit": "/audit",
}
# What comes after its page, where it takes longer than a page may (app/pages/render.py).
COME_AFTER: Final = {
    "what happened to a job": PAGES["job"],
    "what became of one, completed": PAGES["job, completed"],
}


async def fill(http: httpx.AsyncClient, dsn: str, jobs: int, say: Callable[[str], None] = lambda _: None) -> None:
    """Make the queue and its dead letters, with so many jobs in all, by SQL but for some that the service handles."""
    await Topic(http, DEAD).put()
    deep = Topic(http, DEEP)
    await deep.put(max_deliveries=1, on_exhausted="dead_letter", dead_letter=DEAD)
    await deep.append(*({"data": n, "tenant": f"t{n % 7}"} for n in range(SOUGHT)))
    held = [job["$seq"] for job in (await deep.claim(max=SOUGHT))["claimed"]]
    await deep.ack("n", held[: SOUGHT // 2])
    await deep.nack("n", held[SOUGHT // 2 :][:GONE], errors=["ValueError: no address"] * GONE)
    db = await asyncpg.connect(dsn)
    try:
        await db.execute("SET synchronous_commit = off; SET statement_timeout = 0")
        ids = [await db.fetchval("SELECT id FROM holdfast.topics WHERE name = $1", name) for name in (DEEP, DEAD)]
        names = [f"holdfast.seq_{one}" for one in ids]
        # Events are of this day, and of a topic none is told from before it was made.
        await db.execute("UPDATE holdfast.topics SET created_at = date_trunc('day', now(), 'UTC')")
        for begin in range(0, jobs, CHUNK):
            part = min(CHUNK, jobs - begin)
            await db.execute(_FILL, DEEP, ids[0], DEAD, ids[1], *names, part, begin, jobs, timeout=600)
            say(f"{begin + part:,} of {jobs:,} jobs")
    finally:
        await db.close()


async def took(http: httpx.AsyncClient, path: str, times: int, headers: Mapping[str, str] | None = None) -> list[float]:
    """How long a page takes, in ms, each time; it must come as it should."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        answer = await http.get(f"/admin{path}", headers=headers)
        found.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
    return found


@asynccontextmanager
async def service_of_its_own() -> AsyncIterator[tuple[Running, str]]:
    """A service on an embedded PostgreSQL, and that one's address; both end with the block."""
    with tempfile.TemporaryDirectory(prefix="holdfast-pages-") as folder:
        postgres = EmbeddedPostgres(Path(folder))
        try:
            dsn = await asyncio.to_thread(postgres.start)
            await schema.upgrade(dsn)
            service = Running(Settings.model_validate({"database_url": SecretStr(dsn)}))
            await service.start()
            yield service, dsn
            await service.stop()
        finally:
            await asyncio.to_thread(postgres.stop)


async def _measure(jobs: int) -> int:
    slow = 0
    async with service_of_its_own() as (service, dsn), httpx.AsyncClient(base_url=service.url, timeout=60) as http:
        await fill(http, dsn, jobs, lambda text: print(text, file=sys.stderr, flush=True))
        print(f"{'page, with ' + format(jobs, ',') + ' jobs':40} {'p50':>8} {'p95':>8} {'most':>8}   ms")
        for name, path in PAGES.items():
            found = sorted(await took(http, path, ASKED))
            p95 = statistics.quantiles(found, n=20, method="inclusive")[-1]
            slow += p95 > BAR_MS
            verdict = f"  more than {BAR_MS:.0f}" if p95 > BAR_MS else ""
            print(f"{name:40} {statistics.median(found):8.1f} {p95:8.1f} {found[-1]:8.1f}{verdict}", flush=True)
        for name, path in COME_AFTER.items():
            found = sorted(await took(http, path, ASKED, MOVES))
            p95 = statistics.quantiles(found, n=20, method="inclusive")[-1]
            print(f"{name:40} {statistics.median(found):8.1f} {p95:8.1f} {found[-1]:8.1f}  behind a page", flush=True)
    return slow


def main(argv: Sequence[str]) -> int:
    """The exit code: 1 if a page was too slow."""
    parser = argparse.ArgumentParser(prog="python -m tools.pages.depth", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=JOBS, help="how many (%(default)s)")
    return min(asyncio.run(_measure(parser.parse_args(argv).jobs)), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
