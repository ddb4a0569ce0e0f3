"""What a tenant with a million jobs does to its neighbours."""

from __future__ import annotations

import msgspec

from tests.benchmarks.bench import Bench, Effort, say
from tests.benchmarks.figures import Bound, Figure
from tests.benchmarks.fill import empty, fill, settle
from tests.benchmarks.load import Posts, claim_body

SMALL = 100  # tenants
EACH = 10  # jobs of each
BATCH = 1_000
CLAIMS = 10  # after which it is given up


class _Job(msgspec.Struct):
    tenant: str = ""


class _Claimed(msgspec.Struct):
    claimed: list[_Job]


async def fairness(bench: Bench, effort: Effort) -> list[Figure]:
    """Claims of 1,000 until all jobs of 100 tenants with ten each are out, which came behind 1,000,000 of another."""
    many = effort.of(1_000_000, 20_000)
    queue = (await bench.queue("fairness")).topic
    await fill(bench, queue, many, bulk=True)
    records = [{"data": n, "tenant": f"small {n}"} for _ in range(EACH) for n in range(1, SMALL + 1)]
    body, path = msgspec.json.encode({"records": records}), f"/v0/topics/{queue.name}"
    needed: list[float] = []
    for _ in range(effort.rounds):
        await bench.drive(Posts([bench.service.port], path, [body], 1, 1))
        await settle(bench)
        say(f"{SMALL} tenants with {EACH} jobs each behind {many:,} of another")
        load = Posts([bench.service.port], f"{path}/claim", [claim_body(BATCH)], 1, CLAIMS, keep=True)
        outs = [msgspec.json.decode(answer, type=_Claimed).claimed for answer in (await bench.drive(load)).answers]
        out = [sum(bool(job.tenant) for job in claimed) for claimed in outs]
        needed.append(next((n for n in range(1, CLAIMS) if sum(out[:n]) == SMALL * EACH), CLAIMS))
    await empty(bench, queue)
    name = f"{SMALL * EACH:,} jobs of {SMALL} tenants beside {many:,} of one"
    return [Bound(name, f"claims of {BATCH:,}", max(needed), 2, needed)]
