"""awa-pg: copied in by the thousand, 200 slots."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import awa

from tools.bench.peers.drivers.protocol import Meter, in_lanes, serve

COPIED = 1000
LANES = 4
SLOTS = 200


@dataclass
class NoOp:
    id: str
    text: str


class Awa:
    def __init__(self) -> None:
        self._url = ""

    async def prepare(self, url: str) -> str:
        self._url = url
        client = awa.AsyncClient(url)
        await client.migrate()
        await client.install_queue_storage(schema="awa")
        await client.close()
        return version("awa-pg")

    async def cycle(self, payloads: list[dict[str, str]], meter: Meter, claim: int | None) -> tuple[float, float]:
        client = awa.AsyncClient(self._url, max_connections=20)

        @client.task(NoOp, queue="bench")
        async def no_op(_: Any) -> None:
            meter.handled()

        jobs = [NoOp(**payload) for payload in payloads]
        began = time.perf_counter()
        await in_lanes(lambda some: client.enqueue_many_copy(some, queue="bench"), jobs, COPIED, LANES)
        enqueued = time.perf_counter()
        meter.start()
        await client.start([{"name": "bench", "max_workers": SLOTS} | ({"claim_batch_size": claim} if claim else {})])
        await meter.done.wait()
        ran = time.perf_counter()
        await client.shutdown()
        return enqueued - began, ran - enqueued


if __name__ == "__main__":
    serve(Awa())
