"""One round: traffic on topics of its own beside faults, drained at the end, looked over, and judged."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx

from tools.chaos import record
from tools.chaos.crew import Crew
from tools.chaos.faults import Fault, Stage
from tools.chaos.nemesis import Nemesis, beat, plan
from tools.chaos.readers import Reader
from tools.chaos.record import Recorder, now
from tools.chaos.system import System
from tools.chaos.traffic import LEASE_MS, Topics, Traffic
from tools.history.checker import check
from tools.history.facts import PAUSED, Facts
from tools.history.history import Burial, End, History, Outcome, Reading
from tools.history.rules_of_service import Silence, longest_gap, longest_silence

CONSUMERS: Final = 5
PRODUCERS: Final = {"plain": 2, "groups": 1, "few": 1, "log": 1}
DRAIN_SECONDS: Final = 60.0
DEADLOCK: Final = "ERROR:  deadlock detected"
WORSE: Final = re.compile(r"PANIC: .*|.*(?:invalid page|could not read block|unexpected data beyond EOF).*")


@dataclass(slots=True)
class Asked:
    """What to do in a round: for so many seconds, and, with `until_each`, until each kind has come."""

    number: int
    seed: int
    seconds: float
    kinds: Sequence[str]
    faults: Mapping[str, Fault]
    calm: tuple[float, float]
    pairs: float
    until_each: bool
    patience: float
    told: Callable[[str], None]


@dataclass(slots=True)
class Told:
    """What came of it. `gaps` and `recoveries` are seconds, by the kind of the fault."""

    number: int
    seconds: float
    faults: list[str]
    sums: Counter[str]
    swallowed: int
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    gaps: dict[str, list[float]] = field(default_factory=dict)
    silence: Silence | None = None  # the one that came nearest to its bound


async def play(system: System, folder: Path, asked: Asked, ids: itertools.count[int]) -> Told:
    """A round. Raises what breaks the harness itself."""
    folder.mkdir(parents=True)
    recorder = Recorder(folder, "clients")
    seed = f"{asked.seed} round {asked.number}"
    traffic = Traffic(system.urls, recorder, Topics.of(asked.number), seed, ids)
    swallowed = sum(proxy.swallowed for proxy in system.proxies)
    log_begins = len(system.database_log())
    began = time.monotonic()
    await traffic.create()
    crew = Crew(("sdk0", "sdk1"), system.urls, folder, system.root, list(traffic.topics.queues))
    stage = Stage(system, crew, random.Random(f"{seed} faults"))
    nemesis = Nemesis(stage, traffic, recorder, asked.faults, asked.patience, _teller(asked))
    readers = [Reader(traffic, name) for name in ("page0", "page1", "watch")]
    beating = asyncio.create_task(beat(recorder))
    try:
        await _storm(asked, nemesis, traffic, crew, readers)
        await _look(system, traffic, recorder, log_begins)
    finally:
        crew.kill()
        beating.cancel()
        await traffic.close()
        recorder.close()
    history = await asyncio.to_thread(record.read, folder)
    history.patience = asked.patience
    told = Told(asked.number, time.monotonic() - began, await asyncio.to_thread(check, history), sums(history), 0)
    told.sums += traffic.sums
    told.swallowed = sum(proxy.swallowed for proxy in system.proxies) - swallowed
    told.recoveries = nemesis.recoveries
    facts = Facts(history)
    told.silence = longest_silence(facts)
    for fault in history.outages:
        told.gaps.setdefault(fault.kind, []).append(longest_gap(facts, fault) / 1000)
    return told


async def _storm(asked: Asked, nemesis: Nemesis, traffic: Traffic, crew: Crew, readers: Sequence[Reader]) -> None:
    """The clients at work, the faults, and the queues drained afterwards."""
    topics = traffic.topics
    async with asyncio.TaskGroup() as group:
        producers = [
            group.create_task(traffic.produce(f"{kind}{i}", getattr(topics, kind)))
            for kind, number in PRODUCERS.items()
            for i in range(number)
        ]
        producers += [group.create_task(traffic.probe(url)) for url in traffic.urls]
        others = [group.create_task(traffic.consume(f"consumer{i}")) for i in range(CONSUMERS)]
        others += [group.create_task(readers[0].page()), group.create_task(readers[1].page())]
        others.append(group.create_task(readers[2].watch()))
        end = time.monotonic() + asked.seconds
        await until(lambda: traffic.progress.least() > 0, 60, "the clients have not begun")
        for slot in plan(f"{asked.seed} plan {asked.number}", asked.kinds, asked.calm, asked.pairs):
            all_came = nemesis.recoveries.keys() >= set(asked.kinds)
            if time.monotonic() > end and (all_came or not asked.until_each):
                break
            await nemesis.inflict(slot)
        await _mended(nemesis)
        traffic.draining = True
        await asyncio.wait(producers)
        await traffic.idle()
        await drained(traffic, asked.patience)
        codes = await crew.stop()
        if not set(codes) <= {0, -signal.SIGTERM}:  # one that had not begun does not hear it
            traffic.recorder.surprise(f"workers of the SDK ended with {codes}")
        await drained(traffic, asked.patience)  # what they gave back
        await _caught_up(traffic, readers)
        for task in others:
            task.cancel()
        await traffic.idle()


async def _mended(nemesis: Nemesis) -> None:
    """What a fault that was cut short has left."""
    with suppress(asyncpg.PostgresError):
        database = await nemesis.stage.system.connect()
        await database.execute(
            "DROP INDEX IF EXISTS holdfast.chaos; ALTER TABLE holdfast.jobs DROP COLUMN IF EXISTS chaos"
        )
        await database.close()


async def drained(traffic: Traffic, patience: float) -> None:
    """Wait until the queues are empty and have been for a lease."""
    end = time.monotonic() + DRAIN_SECONDS * patience
    empty_since = None
    async with httpx.AsyncClient(timeout=30) as http:
        while empty_since is None or time.monotonic() < empty_since + LEASE_MS / 1000:
            await asyncio.sleep(0.2)
            counts = {name: await _count(http, traffic.urls[0], name) for name in traffic.topics.queues}
            empty_since = (empty_since or time.monotonic()) if not any(counts.values()) else None
            if empty_since is None and time.monotonic() > end:
                traffic.recorder.surprise(f"not drained in {DRAIN_SECONDS:.0f} s: {counts}")
                return


async def _count(http: httpx.AsyncClient, url: str, topic: str) -> int:
    return int((await http.get(f"{url}/v0/topics/{topic}")).raise_for_status().json()["count"])


async def _caught_up(traffic: Traffic, readers: Sequence[Reader]) -> None:
    """Read all of the log, and wait until all readers have come as far."""
    caller = traffic.caller("last reader")
    at, caught_up = 0, False
    while not caught_up:
        body = {"from_seq": at, "limit": 1000}
        answer = (await caller.http.post(f"{traffic.urls[0]}/v0/topics/{traffic.topics.log}/diff", json=body)).json()
        pairs = tuple((one["$seq"], one["data"]["id"]) for one in answer["records"])
        traffic.recorder.note(Reading("", pairs, now(), traffic.topics.log))
        at, caught_up = answer["next_from_seq"], answer["caught_up"]
    with suppress(AssertionError):  # the checker says who missed what
        await until(lambda: all(reader.at >= at for reader in readers), 30, "")


async def _look(system: System, traffic: Traffic, recorder: Recorder, log_begins: int) -> None:
    """What there is at the end: dead letters, rows, sessions, and lines of the database's log."""
    await _exhume(traffic, recorder)
    database = await system.connect()
    try:
        names = [*traffic.topics.made(), traffic.topics.dead]
        left = {
            "jobs": "SELECT count(*) FROM holdfast.jobs WHERE topic = ANY($1)",
            "sessions in a transaction": "SELECT count(*) FROM pg_stat_activity "
            "WHERE application_name = 'holdfast' AND state LIKE 'idle in transaction%' AND $1::text[] IS NOT NULL "
            "AND now() - state_change > interval '1 second'",
            "waiting locks": "SELECT count(*) FROM pg_locks WHERE NOT granted AND $1::text[] IS NOT NULL",
        }
        found = {what: int(await database.fetchval(query, names)) for what, query in left.items()}
    finally:
        await database.close()
    said = system.database_log()
    said = said[log_begins:] if len(said) >= log_begins else said  # a new one was begun
    for line in WORSE.findall(said):
        recorder.surprise(f"PostgreSQL: {line}")
    recorder.note(End(said.count(DEADLOCK), found))


async def _exhume(traffic: Traffic, recorder: Recorder) -> None:
    """Take out the dead letters, and note whose they are."""
    caller, path = traffic.caller("undertaker"), f"/v0/topics/{traffic.topics.dead}"
    there = (await caller.http.get(traffic.urls[0] + path)).status_code == 200
    while there:
        body: dict[str, Any] = {"node": "undertaker", "max": 500, "lease_ms": 60_000}
        outcome, answer = await caller.post(f"{path}/claim", body)
        if outcome is Outcome.DONE:
            jobs = answer["claimed"]
            for job in jobs:
                meta = job["meta"]
                recorder.note(Burial(job["data"]["id"], int(meta["$dead_letter_src_seq"]), meta["$dead_letter_from"]))
            await caller.post(f"{path}/ack", {"node": "undertaker", "seqs": [job["$seq"] for job in jobs]})
            there = bool(jobs)


async def until(fact: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for a fact. Raises AssertionError."""
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.02)


def sums(history: History) -> Counter[str]:
    """What was tried, in numbers, by all clients: a run that met nothing shows it here."""
    counts = Counter[str]()
    logs = {topic.name for topic in history.topics if topic.is_log}
    for enqueue in history.enqueues:
        what = "records of logs" if enqueue.topic in logs else "jobs"
        counts[f"{what}, {enqueue.outcome.value}"] += len(enqueue.ids)
    for claim in history.claims:
        counts[f"claims, {claim.outcome.value}"] += 1
    counts["deliveries"] = len(history.deliveries)
    counts["deliveries, not the first"] = sum(1 for one in history.deliveries if one.number > 1)
    for one in history.settlements:
        counts[f"{one.verb.value}s of jobs, {one.outcome.value}"] += 1
    calls = {(one.sent, one.ended, one.outcome) for one in history.settlements}  # one is of many jobs
    calls |= {(one.sent, one.ended, one.outcome) for one in history.enqueues}
    calls |= {(one.sent, one.ended, one.outcome) for one in history.claims}
    counts["calls"] = len(calls)
    counts["calls in doubt"] = sum(1 for call in calls if call[2] is Outcome.IN_DOUBT)
    counts["dead letters"] = len(history.burials)
    counts["faults inflicted"] = len([one for one in history.outages if one.kind != PAUSED])
    return counts


def _teller(asked: Asked) -> Callable[[str, float], None]:
    return lambda kind, seconds: asked.told(f"{kind}: {seconds:.1f} s")
