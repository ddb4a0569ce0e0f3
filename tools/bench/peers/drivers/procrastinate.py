"""procrastinate: deferred by the thousand, 20 jobs at a time, finished jobs kept, as it does by default.

It claims them one by one, whatever is asked.
"""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import Any

import procrastinate

from tools.bench.peers.drivers.protocol import Meter, in_lanes, serve, until_done

DEFERRED = 1000
LANES = 4
CONCURRENCY = 20


class Procrastinate:
    def __init__(self) -> None:
        self._url = ""

    async def prepare(self, url: str) -> str:
        self._url = url
        async with self._app().open_async() as app:
            await app.schema_manager.apply_schema_async()
        return version("procrastinate")

    async def cycle(self, payloads: list[dict[str, str]], meter: Meter, claim: int | None) -> tuple[float, float]:
        app = self._app()

        @app.task(name="no_op")
        async def no_op(**_: Any) -> None:
            meter.handled()

        async with app.open_async():
            began = time.perf_counter()
            await in_lanes(lambda some: no_op.batch_defer_async(*some), payloads, DEFERRED, LANES)
            enqueued = time.perf_counter()
            meter.start()
            running = app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
            worker = asyncio.ensure_future(running)
            await until_done(worker, meter)
            worker.cancel()  # it finishes what it has begun
            await asyncio.gather(worker, return_exceptions=True)
            return enqueued - began, time.perf_counter() - enqueued

    def _app(self) -> procrastinate.App:
        pool = {"min_size": CONCURRENCY + 2, "max_size": CONCURRENCY + 2}
        return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self._url, **pool))


if __name__ == "__main__":
    serve(Procrastinate())
