"""What the queue costs beside the server: one job a request, against a route that does nothing."""

from __future__ import annotations

import json

from tools.bench.bench import Bench, Effort
from tools.bench.figures import Figure, Ratio
from tools.bench.load import ACK, CLAIM, Outcome, Posts, ack_body, claim_body, data_of, records_body

CLIENTS = 64
DEEP = 20_000  # jobs that are there, so that no round of claims runs out of them


async def single(bench: Bench, effort: Effort) -> list[Figure]:
    """Single-job enqueue, claim and ack from 64 clients, against the no-op route of the same server.

    The no-op route is an ordinary FastAPI route. For comparison, without a bar: against the same as a direct route,
    which is what the service's own routes are (docs/adr/0016).
    """
    queue = await bench.queue("single")
    topic, name = f"/v0/topics/{queue.topic.name}", queue.topic.name
    records = [records_body([data_of(bench.payload)]) for _ in range(50)]
    ports = [bench.service.port]

    async def drive(path: str, bodies: list[bytes], *, seconds: float | None = None, keep: bool = False) -> Outcome:
        return await bench.drive(Posts(ports, path, bodies, CLIENTS, seconds=seconds, keep=keep))

    await bench.drive(Posts(ports, topic, records, CLIENTS, requests=DEEP))
    enqueues, claims, acks, bases, directs = [], [], [], [], []
    for _ in range(effort.rounds):
        bases.append((await drive(f"/no-op/{name}", records, seconds=effort.seconds)).rate)
        directs.append((await drive(f"/direct-no-op/{name}", records, seconds=effort.seconds)).rate)
        enqueues.append((await drive(topic, records, seconds=effort.seconds)).rate)
        bases.append((await drive(f"/no-op/{name}", records, seconds=effort.seconds)).rate)
        claimed = await drive(f"{topic}/{CLAIM}", [claim_body(1)], seconds=effort.seconds, keep=True)
        claims.append(claimed.rate)
        bodies = [ack_body(answer)[1] for answer in claimed.answers]
        acks.append((await drive(f"{topic}/{ACK}", bodies)).rate)
        assert json.loads(claimed.answers[-1])["count"] == 1, "there were not enough jobs"
    return [
        Ratio("single-job enqueue, 64 clients / no-op route", "requests", enqueues, bases, 0.70),
        Ratio("single-job claim, 64 clients / no-op route", "requests", claims, bases, 0.60),
        Ratio("single-job ack, 64 clients / no-op route", "requests", acks, bases, 0.60),
        Ratio("for comparison: enqueue / the no-op as a direct route", "requests", enqueues, directs, 0.0),
        Ratio("for comparison: claim / the no-op as a direct route", "requests", claims, directs, 0.0),
        Ratio("for comparison: ack / the no-op as a direct route", "requests", acks, directs, 0.0),
    ]
