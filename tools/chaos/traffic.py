"""The clients of one round: they enqueue, claim and settle, well and badly, and write down what they were told.

A round has topics of its own, so that it can be drained and judged by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tools.chaos.record import Recorder, answered_of, asked_of, now, outcome_of, payload
from tools.history.history import Outcome, Topic

LEASE_MS: Final = 1500
MOST_A_BATCH: Final = 20
MOST_A_CLAIM: Final = 50
MOST_READY: Final = 300  # with a deep backlog a job that comes back too soon would wait behind it unseen
MOST_DELIVERIES: Final = 3
GROUPS: Final = 40
PATIENCE: Final = 20.0
HURRY: Final = 1.0
AGAIN: Final = 0.1  # of the batches with keys are sent once more later
LIMITS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=100, keepalive_expiry=30)


@dataclass(frozen=True, slots=True)
class Topics:
    """Of a round. `few` takes jobs out after MOST_DELIVERIES, into `dead`."""

    plain: str
    groups: str
    few: str
    log: str

    @classmethod
    def of(cls, round_: int) -> Topics:
        return cls(*(f"r{round_}-{kind}" for kind in ("plain", "groups", "few", "log")))

    @property
    def dead(self) -> str:
        return f"{self.few}.dlq"

    @property
    def queues(self) -> tuple[str, str, str]:
        return self.plain, self.groups, self.few

    def made(self) -> dict[str, tuple[Topic, dict[str, Any]]]:
        """With what each is made, and what the checker is to know of it."""
        queue = {"type": "queue", "durable": True, "lease_ms": LEASE_MS}
        few = {"max_deliveries": MOST_DELIVERIES, "dead_letter": self.dead, "on_exhausted": "dead_letter"}
        return {
            self.plain: (Topic(self.plain), queue),
            self.groups: (Topic(self.groups), queue),
            self.few: (Topic(self.few, max_deliveries=MOST_DELIVERIES), queue | few),
            self.log: (Topic(self.log, is_log=True), {"type": "log", "durable": True}),
        }


@dataclass(slots=True)
class Progress:
    """When the last call of each kind was sent that was answered with success; in ms since 1970."""

    enqueued: float = 0.0
    claimed: float = 0.0  # also nothing
    acked: float = 0.0

    def least(self) -> float:
        return min(self.enqueued, self.claimed, self.acked)


class Caller:
    """Calls of the v0 dialect, at any of the addresses, written down."""

    def __init__(self, urls: list[str], recorder: Recorder, dice: random.Random, patience: float = PATIENCE) -> None:
        self.recorder = recorder
        self.dice = dice
        self.http = httpx.AsyncClient(timeout=patience, limits=LIMITS)
        self._urls = urls
        self._in_a_hurry = patience < PATIENCE

    def url(self) -> str:
        """One of the addresses."""
        return self.dice.choice(self._urls)

    async def call(self, topic: str, verb: str, body: dict[str, Any]) -> tuple[Outcome, dict[str, Any]]:
        """An enqueue, whose verb is "", or one of the others; the answer, {} where there was no good one."""
        op = self.recorder.invoke(verb, topic, **asked_of(verb, body))
        outcome, answer = await self.post(f"/v0/topics/{topic}" + (f"/{verb}" if verb else ""), body)
        self.recorder.end(op, outcome, **(answered_of(verb, answer) if outcome is Outcome.DONE else {}))
        return outcome, answer

    async def post(self, path: str, body: dict[str, Any]) -> tuple[Outcome, dict[str, Any]]:
        """Any call, not written down."""
        try:
            answer = await self.http.post(self.url() + path, json=body)
        except httpx.ConnectError as error:
            # The supervisor holds the listening socket, and the proxies are here: neither is ever closed.
            self.recorder.surprise(f"{path}: {error!r}")
            return Outcome.REFUSED, {}
        except httpx.TimeoutException as error:
            if not self._in_a_hurry:
                self.recorder.surprise(f"{path}: {error!r}")
            return Outcome.IN_DOUBT, {}
        except httpx.TransportError:
            return Outcome.IN_DOUBT, {}
        outcome = outcome_of(answer.status_code)
        if outcome is Outcome.DONE:
            return outcome, answer.json()
        if answer.status_code != 503:
            self.recorder.surprise(f"{path}: {answer.status_code} {answer.text[:300]}")
        return outcome, {}


@dataclass(slots=True)
class HeldJob:
    """A job that was claimed."""

    seq: int
    lease: str
    deadline: float


@dataclass(slots=True)
class Traffic:
    """The producers and the workers of a round. Each draws from a random generator of its own, seeded by `seed`."""

    urls: list[str]
    recorder: Recorder
    topics: Topics
    seed: str
    ids: itertools.count[int]
    progress: Progress = field(default_factory=Progress)
    sums: Counter[str] = field(default_factory=Counter)
    draining: bool = False
    _ready: dict[str, int] = field(default_factory=dict)
    _holders: set[asyncio.Task[None]] = field(default_factory=set)
    _callers: list[Caller] = field(default_factory=list)

    def caller(self, name: str, url: str | None = None, patience: float = PATIENCE) -> Caller:
        """Who calls at any of the addresses, or at one."""
        dice = random.Random(f"{self.seed} {name}")
        self._callers.append(Caller([url] if url else self.urls, self.recorder, dice, patience))
        return self._callers[-1]

    async def close(self) -> None:
        """End the connections of all who have called."""
        for caller in self._callers:
            await caller.http.aclose()

    async def create(self) -> None:
        """The topics, before any fault."""
        caller = self.caller("creator")
        for name, (topic, config) in self.topics.made().items():
            answer = await caller.http.put(f"{self.urls[0]}/v0/topics/{name}", json=config)
            answer.raise_for_status()
            self.recorder.note(topic)

    async def produce(self, name: str, topic: str) -> None:
        """Enqueue batches, those in doubt again, until the draining starts."""
        caller = self.caller(f"producer {name}")
        dice = caller.dice
        later: list[dict[str, Any]] = []  # done, and to be sent once more
        while not self.draining:
            await asyncio.sleep(dice.uniform(0.01, 0.1))
            if self._ready.get(topic, 0) > MOST_READY:
                continue
            if later and dice.random() < AGAIN:
                await self._enqueue(caller, topic, later.pop(0))
                continue
            body = self._batch(dice, topic)
            if await self._enqueue(caller, topic, body) and "idempotency_key" in body and dice.random() < 2 * AGAIN:
                later.append(body)
        for body in later:
            await self._enqueue(caller, topic, body)

    async def consume(self, name: str) -> None:
        """Claim for ever; what is claimed is worked on beside that, well or badly. While draining, well."""
        caller = self.caller(f"consumer {name}")
        dice = caller.dice
        node = f"n{len(name) % 2}"  # a name that two share is no fence between them: the lease ids are
        while True:
            topic = dice.choice(self.topics.queues)
            most, wait_ms = dice.randint(1, MOST_A_CLAIM), dice.choice((0, 100, 300))
            sent = now()
            body = {"node": node, "max": most, "lease_ms": LEASE_MS, "wait_ms": wait_ms}
            outcome, answer = await caller.call(topic, "claim", body)
            if outcome is not Outcome.DONE:
                await asyncio.sleep(0.02)
                continue
            self.progress.claimed = max(self.progress.claimed, sent)
            self._ready[topic] = answer["ready"]
            held = [HeldJob(job["$seq"], job["lease_id"], job["deadline"]) for job in answer["claimed"]]
            if held:
                work = self._work(caller, topic, node, held, random.Random(dice.random()))
                task = asyncio.create_task(work)
                self._holders.add(task)
                task.add_done_callback(self._holders.discard)
            else:
                await asyncio.sleep(0.02)

    async def probe(self, url: str) -> None:
        """Do a job of one's own after another at one address, with little patience: what tells when that serves."""
        caller = self.caller("probe", url, HURRY)
        topic = self.topics.plain
        while not self.draining:
            await asyncio.sleep(0.1)
            [id] = itertools.islice(self.ids, 1)
            if (await caller.call(topic, "", {"records": [{"data": payload(id)}]}))[0] is not Outcome.DONE:
                continue
            body = {"node": "probe", "max": 1, "lease_ms": LEASE_MS}
            _, answer = await caller.call(topic, "claim", body)
            held = [HeldJob(job["$seq"], job["lease_id"], job["deadline"]) for job in answer.get("claimed", ())]
            await self._settle(caller, topic, "ack", "probe", held)

    async def idle(self) -> None:
        """Wait until nobody works on a job."""
        while self._holders:
            await asyncio.wait(list(self._holders))

    def _batch(self, dice: random.Random, topic: str) -> dict[str, Any]:
        """With an idempotency key, or a dedupe id for each job, or neither."""
        size = dice.randint(1, MOST_A_BATCH)
        ids = list(itertools.islice(self.ids, size))
        records: list[dict[str, Any]] = [{"data": payload(id)} for id in ids]
        if topic == self.topics.groups:
            for record in records:
                record["group"] = f"g{dice.randrange(GROUPS)}"
        body: dict[str, Any] = {"records": records}
        # In a group, what was in doubt must not be there twice: its order would be nobody's.
        match dice.randrange(2 if topic == self.topics.groups else 3):
            case 0:
                body["idempotency_key"] = f"batch {ids[0]}"
            case 1 if topic != self.topics.log:
                for id, record in zip(ids, records, strict=True):
                    record["dedupe_id"] = f"job {id}"
            case 1:
                body["idempotency_key"] = f"batch {ids[0]}"
        return body

    async def _enqueue(self, caller: Caller, topic: str, body: dict[str, Any]) -> bool:
        """Until it is known what became of it; without a key, at times not. Whether it was done."""
        unique = "idempotency_key" in body or "dedupe_id" in body["records"][0]
        while True:
            sent = now()
            outcome, _ = await caller.call(topic, "", body)
            if outcome is Outcome.DONE:
                self.progress.enqueued = max(self.progress.enqueued, sent)
                return True
            await asyncio.sleep(caller.dice.uniform(0.05, 0.2))
            if not unique and caller.dice.random() < 0.5:
                return False

    async def _work(self, caller: Caller, topic: str, node: str, held: list[HeldJob], dice: random.Random) -> None:
        if self.draining:
            await self._settle(caller, topic, "ack", node, held)
            return
        dice.shuffle(held)
        cut = len(held) * 8 // 10
        well, badly = held[:cut], held[cut:]
        kind = dice.random()
        if kind < 0.15:
            await asyncio.sleep(dice.uniform(0, 0.7))
            await self._settle(caller, topic, "extend", node, well)
            await asyncio.sleep(dice.uniform(0, 1.3))
        elif kind < 0.3:
            await asyncio.sleep(dice.uniform(0, 1.3))
        await self._settle(caller, topic, "ack", node, well)
        match dice.randrange(5):
            case 0:
                await self._settle(caller, topic, "nack", node, badly, delay_ms=dice.choice((0, 0, 200)))
            case 1 | 2:  # zombies: they come back when their leases have just ended, and others begin
                ended = max((one.deadline for one in badly), default=0.0)
                await asyncio.sleep((ended - now()) / 1000 + dice.uniform(0.002, 0.2))
                self.sums["verbs of zombies, of jobs"] += len(badly)
                await self._settle(caller, topic, dice.choice(("ack", "nack", "extend")), node, badly)
            case 3 if topic == self.topics.few:
                await self._settle(caller, topic, "fail", node, badly)
            case _:  # a worker that died
                self.sums["jobs of workers that died"] += len(badly)

    async def _settle(self, caller: Caller, topic: str, verb: str, node: str, held: list[HeldJob], **more: Any) -> None:
        if not held:
            return
        seqs, leases = [one.seq for one in held], [one.lease for one in held]
        body = {"node": node, "seqs": seqs, "lease_ids": leases, **more}
        if verb == "extend":
            body["lease_ms"] = LEASE_MS
        sent = now()
        outcome, answer = await caller.call(topic, verb, body)
        if verb == "ack" and outcome is Outcome.DONE and len(answer["skipped"]) < len(held):
            self.progress.acked = max(self.progress.acked, sent)
