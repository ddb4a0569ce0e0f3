"""`holdfast bench`: measures a service from this client."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final

import typer

from holdfast import models
from holdfast._cli.params import Json
from holdfast._cli.session import session
from holdfast._client import SyncTopic

PREFIX: Final = "holdfast-bench-"

Call = Callable[[], int]  # makes a call; returns its number of jobs, 0 if no work is left


def bench(
    *,
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs.")] = 10_000,
    batch: Annotated[int, typer.Option(min=1, max=1_000, help="Jobs per call.")] = 100,
    clients: Annotated[int, typer.Option(min=1, max=64, help="Concurrent calls, one thread each.")] = 4,
    size: Annotated[int, typer.Option(min=0, max=1_000_000, help="Bytes of a job's data.")] = 100,
    durable: Annotated[bool, typer.Option("--durable/--not-durable", help="Whether commits wait for the disk.")] = True,
    as_json: Json = False,
) -> None:
    """Measure enqueue, claim and ack of a service from this machine. Uses a temporary topic."""
    with session(as_json, patient=True) as (client, out):
        topic = client.topic(PREFIX + secrets.token_hex(4))
        out.note(
            f"{jobs} jobs of {size} bytes, {batch} per call, {clients} concurrent calls, "
            f"{'durable' if durable else 'not durable'}, on {topic.name} of {client.account.base_url}."
        )
        try:
            topic.put(models.TopicConfig(durable=durable, lease_ms=600_000))
            out.many(_measured(topic, jobs, batch, clients, size), *COLUMNS)
        finally:
            topic.delete()
        out.note("Measured at this client: includes the network and the client's own work.")


COLUMNS: Final = ("verb", "jobs", "calls", "seconds", "jobs_per_second", "p50_ms", "p95_ms", "p99_ms", "max_ms")


def _measured(topic: SyncTopic, jobs: int, batch: int, clients: int, size: int) -> Iterator[dict[str, Any]]:
    """Measure each verb, one after another."""
    left = iter([batch] * (jobs // batch) + ([jobs % batch] if jobs % batch else []))
    data = "x" * max(0, size - 2)  # without the quotes
    held: list[tuple[models.ClaimedJob, ...]] = []
    lock = threading.Lock()

    def enqueue() -> int:
        with lock:
            count = next(left, 0)
        return topic.enqueue_many([data] * count).count if count else 0

    def claim() -> int:
        claimed = topic.claim(max=batch).jobs
        if claimed:
            held.append(claimed)
        return len(claimed)

    def ack() -> int:
        with lock:
            claimed = held.pop() if held else ()
        return topic.ack(*claimed).acked if claimed else 0

    for verb, call in (("enqueue", enqueue), ("claim", claim), ("ack", ack)):
        yield {"verb": verb} | _run(call, clients)


def _run(call: Call, clients: int) -> dict[str, Any]:
    """Make calls until no work is left."""
    stopped = threading.Event()
    times: list[float] = []

    def until_done() -> int:
        done = 0
        while not stopped.is_set():
            began = time.perf_counter()
            count = call()
            if not count:
                break
            times.append(time.perf_counter() - began)
            done += count
        return done

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        try:
            done = sum(list(pool.map(lambda _: until_done(), range(clients))))
        finally:
            stopped.set()
    seconds = time.perf_counter() - began
    times.sort()
    return {
        "jobs": done,
        "calls": len(times),
        "seconds": round(seconds, 3),
        "jobs_per_second": round(done / seconds),
        **{f"p{share}_ms": _percentile(times, share) for share in (50, 95, 99)},
        "max_ms": _percentile(times, 100),
    }


def _percentile(times: list[float], share: int) -> float | None:
    """The percentile by nearest rank, in ms; None without times."""
    return round(times[-(-len(times) * share // 100) - 1] * 1000, 2) if times else None
