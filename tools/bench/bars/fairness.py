"""What a tenant with a million jobs does to its neighbours."""

from __future__ import annotations

import msgspec

from app.kernel.enqueue import producer
from app.kernel.model import Lane
from tools.bench.bench import Bench, Effort, say
from tools.bench.figures import Bound, Figure
from tools.bench.fill import empty, fill, settle
from tools.bench.load import Posts, claim_body

SMALL = 100  # tenants
EACH = 10  # jobs of each
BATCH = 1_000
CLAIMS = 10  # after which it is given up

# Behind all that the large one has; as enqueue.sql writes them, with their tally, but without their events.
_SMALL = """
WITH tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, bytes) VALUES ($2, $4::integer * $5::integer, 2 * $4 * $5)
)
INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, visible_at, created_at, updated_at, payload)
SELECT $1, $2, s.seq, s.seq, 'ready', 'small ' || s.n, now(), now(), now(), convert_to('{}', 'UTF8')
FROM (
    SELECT nextval($3::oid::regclass) AS seq, n FROM generate_series(1, $4::integer) n, generate_series(1, $5::integer)
) s
"""


class _Job(msgspec.Struct):
    tenant: str = ""


class _Claimed(msgspec.Struct):
    claimed: list[_Job]


async def fairness(bench: Bench, effort: Effort) -> list[Figure]:
    """Claims of 1,000 until all jobs of 100 tenants with ten each are out, which came behind 1,000,000 of another:
    through the service, which then knows of them, and past it, where nobody tells it."""
    many = effort.of(1_000_000, 20_000)
    queue = (await bench.queue("fairness")).topic
    path = f"/v0/topics/{queue.name}"
    await fill(bench, queue, many, bulk=True)
    names = [f"small {n}" for n in range(1, SMALL + 1)]
    await producer.add_lanes(bench.pools.hot, queue, [Lane(name, 0) for name in names])
    records = [{"data": {}, "tenant": name} for _ in range(EACH) for name in names]
    enqueue = Posts([bench.service.port], path, [msgspec.json.encode({"records": records})], 1, 1)

    async def through() -> None:
        await bench.drive(enqueue)

    async def past() -> None:
        await bench.db.execute(_SMALL, queue.name, queue.id, queue.sequence, SMALL, EACH)

    figures: list[Figure] = []
    for way, put in (("through the service", through), ("past it", past)):
        needed: list[float] = []
        for _ in range(effort.rounds):
            await put()
            await settle(bench)
            say(f"{SMALL} tenants with {EACH} jobs each, put in {way}, behind {many:,} of another")
            load = Posts([bench.service.port], f"{path}/claim", [claim_body(BATCH)], 1, CLAIMS, keep=True)
            answers = (await bench.drive(load)).answers
            out = [sum(bool(job.tenant) for job in msgspec.json.decode(one, type=_Claimed).claimed) for one in answers]
            needed.append(next((n for n in range(1, CLAIMS) if sum(out[:n]) == SMALL * EACH), CLAIMS))
        name = f"{SMALL * EACH:,} jobs of {SMALL} tenants, put in {way}, beside {many:,} of one"
        figures.append(Bound(name, f"claims of {BATCH:,}", max(needed), 2, needed))
    await empty(bench, queue)
    return figures
