"""Holdfast's worker, as the SDK has it: one process, one thread for the handler, one event loop.

Run with the jobs of an enqueue, and how many connections do those. The worker claims and acks as it does for anybody.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tools.bench.peers.drivers.holdfast import Holdfast
from tools.bench.peers.drivers.protocol import Meter, serve, until_done

sys.path.insert(0, str(Path(__file__).parents[4] / "sdk/src"))

from holdfast import Queue, Worker

CONCURRENCY: Final = 24  # as graphile-worker's


class HoldfastWorker(Holdfast):
    async def run(self, meter: Meter, claim: int | None) -> None:
        """Until the last ack is answered."""
        parts = urlsplit(self._url)
        queue = Queue(f"{parts.scheme}://{parts.netloc}")

        @queue.handler(parts.path.rpartition("/")[2], concurrency=CONCURRENCY)
        async def no_op(_: Any) -> None:
            meter.handled()

        worker = Worker(queue)
        running = asyncio.create_task(worker.run(signals=False))
        await until_done(running, meter)
        worker.stop()
        await running
        await queue.aclose()


if __name__ == "__main__":
    serve(HoldfastWorker(int(sys.argv[1]), int(sys.argv[2])))
