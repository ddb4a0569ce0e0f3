"""Calls at random on a queue, and a model that replays them: what the queue looked like at any time in between."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from random import Random

import httpx

from tests.api.dialect import Body, Topic, accepted, eventually
from tests.api.process import Process

MARGIN = 0.003  # s; two clocks are read, and times pass through milliseconds
MAX_DELIVERIES = 2
VERBS = ["add", "add", "later", "brief", "claim", "claim", "claim", "ack", "nack", "nack", "extend", "fail", "cancel"]
VERBS += ["requeue", "purge", "sweep"]


@dataclass(slots=True)
class Job:
    """What the model knows of a job: its state, and until when a lease or a delay lasts, and its time to live."""

    state: str
    since: float
    until: float = 0.0
    node: str = ""
    deliveries: int = 0
    ttl: float = math.inf
    ends: float = math.inf
    cancelled: bool = False
    slack: float = 0.0  # how much sooner or later a time may be: it was settled while the call was under way

    def at(self, instant: float) -> set[str]:
        """What it may be, by the clock: nobody knows when a sweep or a claim takes out what is spent."""
        if self.state not in {"ready", "scheduled", "leased"}:
            return {self.state}
        if self.state == "leased" and self.until >= instant:
            return {"leased"}
        if self.state == "leased" and self.cancelled:
            return {"gone"}
        may = {"scheduled" if self.state == "scheduled" and self.until >= instant else "ready"}
        if self.state == "leased" and self.deliveries >= MAX_DELIVERIES:
            may.add("dead_lettered")
        if self.ends < instant:
            may.add("expired")
        return may

    def claimable_since(self) -> float:
        return self.until if self.state in {"leased", "scheduled"} else self.since

    def changes_near(self, instant: float) -> bool:
        """Whether it depends on whose clock is right."""
        return any(abs(time - instant) < self.slack + 2 * MARGIN for time in (self.until, self.ends))


@dataclass(slots=True)
class Picture:
    """A model's jobs between two calls."""

    begin: float
    end: float
    jobs: list[Job]

    def agrees(self, told: Body, instant: float) -> bool:
        """Whether a queue may have looked so then."""
        names = ("ready", "leased", "scheduled", "failed", "expired", "dead_lettered", "gone")
        may = {(0,) * len(names)}
        for job in self.jobs:
            states = [names.index(state) for state in job.at(instant)]
            may = {tuple(n + (i == place) for i, n in enumerate(counts)) for counts in may for place in states}
        shown = ("ready", "in_flight", "scheduled", "failed", "expired", "dead")
        return tuple(told[name] for name in shown) in {counts[:-1] for counts in may} and self._age(told, instant)

    def _age(self, told: Body, instant: float) -> bool:
        may = [job for job in self.jobs if "ready" in job.at(instant)]
        sure = [job for job in may if len(job.at(instant)) == 1]
        if told["oldest_claimable_age_ms"] is None:
            return not sure
        since = instant - told["oldest_claimable_age_ms"] / 1000
        earliest = min(job.claimable_since() - job.slack for job in may)
        latest = (min if sure else max)(job.claimable_since() + job.slack for job in sure or may)
        return bool(earliest - MARGIN <= since <= latest + MARGIN)


@dataclass(slots=True)
class Span:
    """When a call was under way."""

    began: float
    over: float = 0.0

    @property
    def middle(self) -> float:
        return (self.began + self.over) / 2

    @property
    def slack(self) -> float:
        return (self.over - self.began) / 2


@contextmanager
def timed() -> Iterator[Span]:
    span = Span(time.time())
    yield span
    span.over = time.time()


class Replay:
    """Makes calls at random, and keeps in mind what they did."""

    def __init__(self, queue: Topic, random: Random) -> None:
        self.queue = queue
        self.dead = Topic(queue.http, f"{queue.name}.dlq")
        self.random = random
        self.jobs: dict[int, Job] = {}
        self.pictures: list[Picture] = []
        self.calm = time.time()

    def picture(self) -> None:
        """A call begins: until now nothing has changed since the last one ended."""
        jobs = [replace(j) for j in self.jobs.values()]
        self.pictures.append(Picture(self.calm, time.time(), jobs))

    async def step(self) -> None:
        self.picture()
        await getattr(self, f"_{self.random.choice(VERBS)}")()
        self.calm = time.time()

    async def crash(self, process: Process) -> None:
        """The service is killed while a call is under way, which may or may not have happened."""
        self.picture()
        call = asyncio.create_task(getattr(self, f"_{self.random.choice(['add', 'claim', 'ack'])}")())
        await asyncio.sleep(self.random.random() * 0.01)
        process.server().kill()
        with suppress(httpx.TransportError, AssertionError):  # cut off, or refused
            await call
        await up(self.queue.http)
        await self._look()
        self.calm = time.time()

    async def _look(self) -> None:
        """See which of it happened."""
        rows = {row["seq"]: row for row in await self._rows(self.queue)}
        for seq, row in rows.items():
            known = self.jobs.setdefault(seq, Job("ready", row["created_at"] / 1000, slack=0.001))
            if row["state"] == "leased" and row["deliveries"] != known.deliveries:
                until, count = row["visible_at"] / 1000, row["deliveries"]
                self.jobs[seq] = replace(known, state="leased", until=until, node=row["node"], deliveries=count)
        for seq, job in list(self.jobs.items()):
            if seq not in rows and job.at(time.time()) == {"leased"}:
                del self.jobs[seq]

    async def _rows(self, topic: Topic) -> list[Body]:
        answer = await topic.http.get(f"{topic.path}/jobs", params={"limit": 1_000})
        if answer.status_code == 404:
            return []
        page = accepted(answer)
        assert page["next_cursor"] is None, "a page is all"
        rows: list[Body] = page["jobs"]
        return rows

    async def _add(self) -> None:
        with timed() as call:
            seqs = await self.queue.add(self.random.randint(1, 5))
        self.jobs |= {seq: Job("ready", call.middle, slack=call.slack) for seq in seqs}

    async def _brief(self) -> None:
        ttl = self.random.choice([100, 600])
        with timed() as call:
            seqs = await self.queue.add(2, ttl_ms=ttl)
        ends = call.middle + ttl / 1000
        self.jobs |= {s: Job("ready", call.middle, ttl=ttl / 1000, ends=ends, slack=call.slack) for s in seqs}

    async def _later(self) -> None:
        delay = self.random.randint(20, 300)
        with timed() as call:
            seqs = await self.queue.add(1, delay_ms=delay)
        until = call.middle + delay / 1000
        self.jobs |= {seq: Job("scheduled", call.began, until, slack=call.slack) for seq in seqs}

    async def _claim(self) -> None:
        node = f"w{self.random.randint(0, 3)}"
        lease = self.random.choice([100, 150, 60_000])  # a worker that dies, or one that works
        for job in (await self.queue.claim(node, max=self.random.randint(1, 4), lease_ms=lease))["claimed"]:
            mine, count = self.jobs[job["$seq"]], job["deliveries"]
            assert count == mine.deliveries + 1
            until = job["deadline"] / 1000
            self.jobs[job["$seq"]] = replace(mine, state="leased", until=until, node=node, deliveries=count)

    def _held(self) -> Iterable[tuple[int, Job]]:
        """One that somebody works on, if there is any."""
        held = [(s, j) for s, j in self.jobs.items() if j.state == "leased" and j.until > time.time() + 1]
        return [self.random.choice(held)] if held else []

    async def _ack(self) -> None:
        for seq, job in self._held():
            assert (await self.queue.ack(job.node, [seq]))["acked"] == 1
            del self.jobs[seq]

    async def _nack(self) -> None:
        for seq, job in self._held():
            delay = self.random.choice([0, 50, 200])
            with timed() as call:
                await self.queue.nack(job.node, [seq], delay_ms=delay)
            until = call.middle + delay / 1000
            if job.cancelled:
                del self.jobs[seq]
            elif job.deliveries >= MAX_DELIVERIES:
                job.state = "dead_lettered"
            else:
                slack = max(job.slack, call.slack)
                self.jobs[seq] = replace(job, state="scheduled", until=until, slack=slack)

    async def _fail(self) -> None:
        for seq, job in self._held():
            assert (await self.queue.fail(job.node, [seq]))["failed"] == 1
            if job.cancelled:
                del self.jobs[seq]
            else:
                job.state = "dead_lettered"

    async def _extend(self) -> None:
        for seq, job in self._held():
            answer = await self.queue.extend(job.node, [seq], self.random.choice([200, 120_000]))
            job.until = answer["deadlines"][str(seq)] / 1000

    async def _cancel(self) -> None:
        if not self.jobs:
            return
        seq = self.random.choice(list(self.jobs))
        answer = await self.queue.post("cancel", seqs=[seq])
        if answer["cancelled"]:
            del self.jobs[seq]
        elif answer["marked"]:
            self.jobs[seq].cancelled = True

    async def _letters(self) -> dict[int, int]:
        """The dead letters by the jobs that they were: all known to be dead, and some that may be."""
        letters = {row["original_seq"]: row["seq"] for row in await self._rows(self.dead)}
        assert {seq for seq, job in self.jobs.items() if job.state == "dead_lettered"} <= set(letters)
        return letters

    async def _requeue(self) -> None:
        letters = await self._letters()
        chosen = list(letters)[:2]
        if not chosen:
            return
        with timed() as call:
            await requeue(self.queue, chosen)
        for seq in chosen:
            ttl = self.jobs[seq].ttl
            self.jobs[seq] = Job("scheduled", 0, call.middle, ttl=ttl, ends=call.middle + ttl, slack=call.slack)

    async def _purge(self) -> None:
        letters = await self._letters()
        if len(letters) > 3:
            await self.dead.post("delete", before_seq=sorted(letters.values())[3])
            for seq in sorted(letters, key=lambda seq: letters[seq])[:3]:
                del self.jobs[seq]

    async def _sweep(self) -> None:
        for sweep in ("exhaustion", "expiry"):
            began = time.time()
            accepted(await self.queue.http.post(f"/v0/admin/reapers/{sweep}/run", json={"wait_ms": 10_000}))
            for job in self.jobs.values():
                may = job.at(began - job.slack - 2 * MARGIN)
                if sweep == "exhaustion" and may == {"ready", "dead_lettered"}:
                    job.state = "dead_lettered"
                elif sweep == "expiry" and "expired" in may and "dead_lettered" not in may:
                    job.state = "expired"


async def requeue(queue: Topic, seqs: list[int]) -> None:
    """Requeue dead letters of a topic, or its failed jobs, and wait until that is done."""
    operation = (await queue.http.post(f"{queue.path}/requeue", json={"seqs": seqs})).json()

    async def done() -> bool:
        return bool(accepted(await queue.http.get(f"/v0/operations/{operation['id']}"))["state"] == "done")

    await eventually(done)


async def up(http: httpx.AsyncClient) -> None:
    """Wait until the service is there again."""
    for _ in range(500):
        try:
            if (await http.get("/readyz")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come back")
