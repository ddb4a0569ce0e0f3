"""The server process and PostgreSQL are killed, again and again, under traffic. Nothing that was promised is lost.

HOLDFAST_TEST_KILLS: how often each of the two (15; `make chaos` does 50).
HOLDFAST_TEST_SEED: the seed of an earlier run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import shutil
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.chaos.checker import check
from tests.chaos.history import Delivery, Enqueue, History, Outage, Outcome, Settlement, Verb
from tests.chaos.nemesis import Nemesis, Service, Target
from tests.chaos.traffic import LEASE_MS, Traffic

KILLS: Final = int(os.environ.get("HOLDFAST_TEST_KILLS", "15"))
PRODUCERS: Final = 2
CONSUMERS: Final = 3
DRAIN_SECONDS: Final = 30.0

pytestmark = pytest.mark.alone


async def test_nothing_promised_is_lost_in_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("HOLDFAST_TEST_SEED") or secrets.randbelow(2**32))
    with capsys.disabled():
        print(f"\n{KILLS} kills of each, seed {seed}", flush=True)
    service = Service(tmp_path)
    try:
        traffic = Traffic(await asyncio.to_thread(service.url), "kills", seed)
    except BaseException:
        service.stop()
        raise
    nemesis = Nemesis(service, traffic, random.Random(f"{seed} nemesis"))
    try:
        await create(traffic.url, traffic.topic)
        began = time.monotonic()
        await storm(traffic, nemesis)
        left = await state(traffic.url, traffic.topic)
    except BaseException:
        write(traffic.history, tmp_path / "history.jsonl")
        raise
    finally:
        code = service.stop()
    with capsys.disabled():
        print(f"{time.monotonic() - began:.0f} s\n{nemesis.report()}\n{sums(traffic.history)}", flush=True)
    faults = check(traffic.history)
    if faults:
        write(traffic.history, tmp_path / "history.jsonl")
    assert faults[:20] == [], f"{len(faults)} faults, seed {seed}; all is in {tmp_path}"
    assert traffic.surprises == []
    assert (left["count"], left["queue"]["ready"], left["queue"]["in_flight"]) == (0, 0, 0)
    assert code == 0, service.log()
    if KILLS >= 20:
        assert any(one.outcome is Outcome.IN_DOUBT for one in traffic.history.enqueues), "no kill met an enqueue"
        assert any(one.outcome is Outcome.IN_DOUBT for one in traffic.history.settlements), "no kill met an ack"
    shutil.rmtree(tmp_path / "data")  # a failure keeps it


async def storm(traffic: Traffic, nemesis: Nemesis) -> None:
    """The clients at work, the kills, and the queue drained afterwards."""
    async with asyncio.TaskGroup() as group:
        producers = [group.create_task(traffic.produce(i)) for i in range(PRODUCERS)]
        consumers = [group.create_task(traffic.consume(i)) for i in range(CONSUMERS)]
        for _ in range(KILLS):
            for target in nemesis.dice.sample(list(Target), 2):
                await nemesis.kill(target)
        traffic.draining = True
        await asyncio.wait(producers)
        await traffic.idle()
        await drained(traffic)
        for consumer in consumers:
            consumer.cancel()
        await traffic.idle()


async def drained(traffic: Traffic) -> None:
    """Wait until the queue is empty and has been for a lease."""
    end = time.monotonic() + DRAIN_SECONDS
    empty_since = None
    while empty_since is None or time.monotonic() < empty_since + LEASE_MS / 1000:
        await asyncio.sleep(0.1)
        found = await state(traffic.url, traffic.topic)
        empty_since = (empty_since or time.monotonic()) if found["count"] == 0 else None
        assert empty_since is not None or time.monotonic() < end, f"not drained in {DRAIN_SECONDS} s: {found}"


async def create(url: str, topic: str) -> None:
    async with httpx.AsyncClient(base_url=url) as http:
        answer = await http.put(f"/v0/topics/{topic}", json={"type": "queue", "durable": True, "lease_ms": LEASE_MS})
        assert answer.status_code == 201, answer.text


async def state(url: str, topic: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=url, timeout=20) as http:
        answer: dict[str, Any] = (await http.get(f"/v0/topics/{topic}")).raise_for_status().json()
    return answer


def sums(history: History) -> str:
    """What was tried, in numbers: a run that met nothing shows it here."""
    jobs = Counter[str]()
    for enqueue in history.enqueues:
        jobs[enqueue.outcome.value] += len(enqueue.ids)
    verbs = Counter((one.verb.value, one.outcome.value) for one in history.settlements)
    again = sum(1 for one in history.deliveries if one.number > 1)
    lines = [f"jobs enqueued: {_shown(jobs)}; deliveries: {len(history.deliveries)}, {again} of them not the first"]
    for verb in Verb:
        lines.append(
            f"{verb.value}: " + _shown(Counter({key[1]: n for key, n in verbs.items() if key[0] == verb.value}))
        )
    return "\n".join(lines)


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))


def write(history: History, path: Path) -> None:
    """A history for a reader, a line for each entry."""
    entries: list[Enqueue | Delivery | Settlement | Outage] = []
    entries += history.enqueues
    entries += history.deliveries
    entries += history.settlements
    entries += history.outages
    with path.open("w") as file:
        for entry in entries:
            file.write(json.dumps({"kind": type(entry).__name__, **asdict(entry)}, default=str) + "\n")
