"""A mixed load over HTTP, as in a bad week: all kinds of topics, and workers that do well, fail and die."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

Body = dict[str, Any]

FEWEST_TURNS: Final = 8  # of a topic: by then it has seen everything
SHORT_LEASE_MS: Final = 150  # of workers that will not be back
VERSIONS: Final = ("1.8.0", "1.9.0")
REGIONS: Final = ("eu", "us", "apac")
LOG_DEAD: Final = "graveyard"


@dataclass(frozen=True, slots=True)
class Kind:
    """A topic: how it is set, and what a record of it has beside its data."""

    name: str
    settings: Body = field(default_factory=dict)
    extra: Callable[[random.Random], Body] = lambda dice: {}
    share: float = 1.0  # of the others' jobs
    fails: float = 0.04  # share of the jobs that are returned, or given up


KINDS: Final = (
    Kind("mail", {"durable": True}, share=2),
    Kind("billing", {"durable": True}, lambda dice: {"priority": dice.randrange(10), "tag": f"v{dice.randrange(3)}"}),
    Kind(
        "exports", {"tenant_weights": {"ada": 3, "bob": 1}}, lambda dice: {"tenant": dice.choice(("ada", "bob", "eve"))}
    ),
    Kind(
        "orders.fifo",
        {"durable": True, "max_deliveries": 3, "dead_letter": "orders.dlq"},
        lambda dice: {"group": f"customer-{int(dice.expovariate(0.08))}", "tenant": dice.choice(("ada", "bob"))},
        share=0.6,
        fails=0.1,
    ),
    Kind("profiles", {}, lambda dice: {"key": f"user-{dice.randrange(20)}"}, fails=0.4),
    Kind("reminders", {}, lambda dice: {"delay_ms": dice.choice((0, 50, 400, 3_600_000))}, share=0.5),
    Kind("offers", {"ttl_ms": 3_600_000}, lambda dice: {"ttl_ms": dice.choice((1, 100, 60_000))}, share=0.5),
    Kind(
        "imports",
        {"max_deliveries": 3, "dead_letter": "imports.dlq"},
        lambda dice: {"max_deliveries": 1} if dice.random() < 0.1 else {},
        fails=0.35,
    ),
    Kind("payments", {"max_deliveries": 2, "on_exhausted": "fail", "durable": True}, fails=0.25),
    Kind("hooks", {"max_deliveries": 2, "dead_letter": LOG_DEAD}, share=0.3, fails=0.3),
    Kind(
        "reports", {"replayable": True}, lambda dice: {"group": f"r{dice.randrange(40)}"} if dice.random() < 0.3 else {}
    ),
    Kind("renders", {"durable": True}),
)
MESSAGES: Final = "signups"  # spoken to in the other dialect
RECORDS: Final = "clicks"  # a log


class MixedLoad:
    """Rounds of everything, until there are so many events. `batch` is how many jobs a producer sends at once."""

    def __init__(self, url: str, *, batch: int, seed: int = 7) -> None:
        self.http = httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=64))
        self.batch = batch
        self.seed = seed
        self.events = 0  # roughly: what answers tell of, without what sweeps and groups do
        self.seen = Counter[str]()
        self._number = 0

    async def run(self, events: int, progress: Callable[[int], None] = lambda events: None) -> None:
        """Until about so many events are in the ledger. Fails with what the service refused."""
        async with self.http:
            for kind in KINDS:
                await self._call("PUT", f"/v0/topics/{kind.name}", {"type": "queue", **kind.settings})
            for name in (RECORDS, LOG_DEAD):
                await self._call("PUT", f"/v0/topics/{name}", {"type": "log"})
            started = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for kind in KINDS:
                    group.create_task(self._live(kind, events))
                group.create_task(self._speak_messages(events))
                group.create_task(self._keep_a_log(events))
                group.create_task(self._look_after(events))
                group.create_task(self._report(events, progress))
            self.seen["seconds"] = round(time.monotonic() - started)

    async def _report(self, events: int, progress: Callable[[int], None]) -> None:
        while self.events < events:
            progress(self.events)
            await asyncio.sleep(0.25)
        progress(self.events)

    async def _live(self, kind: Kind, events: int) -> None:
        """One topic: a producer and two workers, one after the other; at the end some jobs are left."""
        dice = random.Random(f"{self.seed} {kind.name}")
        size = max(4, round(self.batch * kind.share))
        for turn in itertools.count():
            await self._produce(kind, size, dice)
            if turn % 2:
                await self._meddle(kind, turn // 2, dice)
            for _ in range(2):
                await self._consume(kind, size, dice)
            if self.events >= events and turn >= FEWEST_TURNS:
                break
        await self._produce(kind, 6, dice)
        await self._consume(kind, 3, dice, lease_ms=3_600_000, settle=False)

    async def _produce(self, kind: Kind, size: int, dice: random.Random) -> None:
        records = [{"data": self._payload(dice), **kind.extra(dice)} for _ in range(size)]
        answer = await self._topic(kind.name, "", records=records, node=f"producer-{dice.randrange(3)}")
        self._count("enqueued", len(set(answer["seqs"])))

    async def _consume(
        self, kind: Kind, size: int, dice: random.Random, *, lease_ms: int | None = None, settle: bool = True
    ) -> None:
        """Claim, and do with the jobs what workers do. One in ten dies with what it has not done by then."""
        dies = settle and dice.random() < 0.1
        version = dice.choice(VERSIONS)
        node = f"worker-{dice.randrange(4)}@{version}"
        lease = SHORT_LEASE_MS if dies else lease_ms or 60_000
        jobs = (await self._topic(kind.name, "claim", node=node, max=size, lease_ms=lease))["claimed"]
        self._count("claimed", len(jobs))
        if not settle or not jobs:
            return
        await self._produce(kind, size // 3 + 1, dice)  # producers don't wait for workers
        if dies:
            self._count("died with", len(jobs) - len(jobs) // 2, events=0)
            jobs = jobs[: len(jobs) // 2]
            if jobs and dice.random() < 0.3:  # and some come back when it is too late
                await asyncio.sleep(SHORT_LEASE_MS / 1000 + 0.01)
        if jobs and dice.random() < 0.2:
            answer = await self._settle(kind, "extend", node, jobs, lease_ms=SHORT_LEASE_MS if dies else 90_000)
            self._count("extended", len(answer["deadlines"]))
        fates = [_fate(job, version, kind, dice) for job in jobs]
        for fate in sorted(set(fates)):
            mine = [job for job, its in zip(jobs, fates, strict=True) if its == fate]
            more: Body = {}
            if fate in ("nack", "fail"):
                more["errors"] = [_error(job, version, dice) for job in mine]
            elif fate == "refund":
                more["refund"] = True
            if fate == "nack" and dice.random() < 0.3:
                more["delay_ms"] = dice.choice((20, 300))
            if kind.name == "renders" and fate == "ack":
                more["results"] = [{"pages": dice.randrange(50), "of": job["data"]["n"]} for job in mine]
            answer = await self._settle(kind, "nack" if fate == "refund" else fate, node, mine, **more)
            self._count(fate, len(mine) - len(answer["skipped"]))

    async def _meddle(self, kind: Kind, turn: int, dice: random.Random) -> None:
        """What people do beside the workers, by turns: requeue, cancel, change, delete."""
        page = (await self._call("GET", f"/v0/topics/{kind.name}/jobs?limit=40"))["jobs"]
        seqs = [job["seq"] for job in page]
        if kind.name in ("imports", "payments", "orders.fifo"):
            await self._topic(kind.name, "requeue", filter={"error": dice.choice(("Timeout", "KeyError"))})
            self._count("requeues", 1, events=0)
        match turn % 3:
            case 0 if seqs:
                answer = await self._topic(kind.name, "cancel", seqs=dice.sample(seqs, min(3, len(seqs))))
                self._count("cancelled", answer["cancelled"] + answer["marked"])
            case 1 if seqs and kind.name in ("mail", "billing"):
                path = f"/v0/topics/{kind.name}/jobs/{dice.choice(seqs)}"
                changed = await self.http.patch(path, json={"priority": dice.randrange(10)})
                self._count("changed", int(changed.status_code == httpx.codes.OK))
            case 2 if kind.name == "billing":
                self._count("deleted", (await self._topic(kind.name, "delete", match="v0"))["deleted"])

    async def _speak_messages(self, events: int) -> None:
        """A topic of the messages dialect, with its defaults: three tries, then dead letters."""
        dice = random.Random(f"{self.seed} messages")
        while self.events < events:
            messages = [{"payload": f"welcome {self._next()}"} for _ in range(max(4, self.batch // 8))]
            await self._call("POST", "/api/messages/batch", {"topic": MESSAGES, "messages": messages})
            self._count("enqueued", len(messages))
            found = await self._call("POST", "/api/messages/dequeue", {"topic": MESSAGES, "count": len(messages)})
            self._count("claimed", len(found["messages"]))
            well = [one["id"] for one in found["messages"] if dice.random() < 0.8]
            if well:
                await self._call("POST", "/api/messages/ack", {"ids": well})
                self._count("ack", len(well))
            for one in [one["id"] for one in found["messages"] if one["id"] not in well][:5]:
                await self._call("POST", f"/api/messages/{one}/nack", {"error": "Timeout after 10 s: smtp"})
                self._count("nack", 1)

    async def _keep_a_log(self, events: int) -> None:
        dice = random.Random(f"{self.seed} log")
        while self.events < events:
            records = [{"data": self._payload(dice), "tag": f"page-{dice.randrange(9)}"} for _ in range(self.batch)]
            await self._topic(RECORDS, "", records=records)
            self._count("records", len(records), events=0)
            await asyncio.sleep(0.05)

    async def _look_after(self, events: int) -> None:
        """Sweeps, a replay, and a topic that is deleted and made anew."""
        dice = random.Random(f"{self.seed} operator")
        replayed = False
        while self.events < events:
            for reaper in ("expiry", "exhaustion"):
                await self._call("POST", f"/v0/admin/reapers/{reaper}/run", {"wait_ms": 5000})
            await self._call("PUT", "/v0/topics/scratch", {"type": "queue"})
            await self._topic("scratch", "", records=[{"data": self._payload(dice)} for _ in range(20)])
            got = await self._topic("scratch", "claim", node="w", max=8)
            await self._topic("scratch", "ack", node="w", seqs=[job["$seq"] for job in got["claimed"][:5]])
            await self._call("DELETE", "/v0/topics/scratch")
            self._count("of a deleted topic", 20, events=53)
            if not replayed and self.events > events // 3:
                answer = await self._call("POST", "/api/topics/reports/replay", {"from_time": None})
                self._count("replayed", answer["enqueued"])
                replayed = True
            await self._call("PUT", "/v0/topics/imports.dlq", {"type": "queue"})
            dead = await self._topic("imports.dlq", "claim", node="undertaker", max=3)
            await self._topic("imports.dlq", "ack", node="undertaker", seqs=[job["$seq"] for job in dead["claimed"]])
            self._count("buried", dead["count"], events=2 * dead["count"])
            await asyncio.sleep(0.3)

    async def _settle(self, kind: Kind, verb: str, node: str, jobs: list[Body], **more: Any) -> Body:
        held = {"seqs": [job["$seq"] for job in jobs], "lease_ids": [job["lease_id"] for job in jobs]}
        return await self._topic(kind.name, verb, node=node, **held, **more)

    async def _topic(self, topic: str, verb: str, **body: Any) -> Body:
        return await self._call("POST", f"/v0/topics/{topic}" + (f"/{verb}" if verb else ""), body)

    async def _call(self, method: str, path: str, body: Body | None = None) -> Body:
        answer = await self.http.request(method, path, json=body)
        if not answer.is_success:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        found: Body = answer.json() if answer.content else {}
        return found

    def _count(self, what: str, jobs: int, events: int | None = None) -> None:
        self.seen[what] += jobs
        self.events += jobs if events is None else events

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _payload(self, dice: random.Random) -> Body:
        return {
            "n": self._next(),
            "region": dice.choice(REGIONS),
            "size": dice.randrange(1, 5000),
            "customer": f"c{dice.randrange(500)}",
        }


def _fate(job: Body, version: str, kind: Kind, dice: random.Random) -> str:
    """What becomes of a delivery: one version fails more, and most where the payload says apac."""
    fails = kind.fails * (2.5 if job["data"]["region"] == "apac" and version == VERSIONS[1] else 0.6)
    if dice.random() >= fails:
        return "ack"
    return dice.choices(("nack", "fail", "refund"), (8, 1, 1))[0]


def _error(job: Body, version: str, dice: random.Random) -> str:
    if job["data"]["region"] == "apac" and version == VERSIONS[1]:
        return f"KeyError: 'postcode' in record {job['data']['n']}"
    return f"Timeout after {dice.choice((10, 30))} s: host-{dice.randrange(9)}"
