"""Clients of a service that keeps dying: they enqueue, claim and settle, and write down what they were told."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.chaos.history import Delivery, Enqueue, History, Outcome, Settlement, Verb

LEASE_MS: Final = 1000
MOST_A_BATCH: Final = 20
MOST_A_CLAIM: Final = 50
MOST_READY: Final = 300  # with a deep backlog a job that comes back too soon would wait behind it unseen
PATIENCE: Final = 20.0


@dataclass(slots=True)
class Progress:
    """When the last call of each kind was sent that was answered with success; in ms since 1970."""

    enqueued: float = 0.0
    claimed: float = 0.0  # also nothing
    got: float = 0.0
    acked: float = 0.0


@dataclass(slots=True)
class Traffic:
    """The clients of one topic. Each draws from a random generator of its own, seeded by `seed`."""

    url: str
    topic: str
    seed: int
    history: History = field(default_factory=History)
    progress: Progress = field(default_factory=Progress)
    surprises: list[str] = field(default_factory=list)  # answers that no kill explains
    draining: bool = False
    _ids: itertools.count[int] = field(default_factory=itertools.count)
    _ready: int = 0
    _holders: set[asyncio.Task[None]] = field(default_factory=set)

    def new_ids(self, number: int) -> tuple[int, ...]:
        """Ids that no job has."""
        return tuple(itertools.islice(self._ids, number))

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=PATIENCE)

    async def produce(self, name: int) -> None:
        """Enqueue batches, those in doubt once more at times, until the draining starts."""
        dice = random.Random(f"{self.seed} producer {name}")
        async with self.client() as http:
            while not self.draining:
                await asyncio.sleep(dice.uniform(0.005, 0.04))
                if self._ready > MOST_READY:
                    continue
                ids = self.new_ids(dice.randint(1, MOST_A_BATCH))
                outcome = await self.enqueue(http, ids)
                while outcome is Outcome.IN_DOUBT:
                    await asyncio.sleep(dice.uniform(0.05, 0.2))
                    if dice.random() < 0.5:
                        break
                    outcome = await self.enqueue(http, ids)

    async def consume(self, name: int) -> None:
        """Claim for ever; what is claimed is worked on beside that, well or badly. While draining, well."""
        dice = random.Random(f"{self.seed} consumer {name}")
        node = f"n{name % 2}"  # a name that two share is no fence between them: the lease ids are
        async with self.client() as http:
            while True:
                most = dice.randint(1, MOST_A_CLAIM)
                body = {"node": node, "max": most, "lease_ms": LEASE_MS, "wait_ms": dice.choice((0, 100, 300))}
                sent = _now()
                outcome, answer = await self._call(http, "claim", body)
                if outcome is not Outcome.DONE:
                    await asyncio.sleep(0.02)
                    continue
                self.progress.claimed = max(self.progress.claimed, sent)
                self._ready = answer["ready"]
                deliveries = [_delivery(job, sent, _now()) for job in answer["claimed"]]
                if deliveries:
                    self.progress.got = max(self.progress.got, sent)
                    self.history.deliveries.extend(deliveries)
                    task = asyncio.create_task(self._work(http, node, deliveries, random.Random(dice.random())))
                    self._holders.add(task)
                    task.add_done_callback(self._holders.discard)
                else:
                    await asyncio.sleep(0.01)

    async def enqueue(self, http: httpx.AsyncClient, ids: tuple[int, ...]) -> Outcome:
        """Enqueue a batch, and write down what came of it."""
        records = [{"data": _payload(id)} for id in ids]
        sent = _now()
        outcome, answer = await self._call(http, "", {"records": records})
        seqs = tuple(answer.get("seqs", ()))
        self.history.enqueues.append(Enqueue(ids, sent, _now(), outcome, seqs))
        if outcome is Outcome.DONE:
            self.progress.enqueued = max(self.progress.enqueued, sent)
        return outcome

    async def idle(self) -> None:
        """Wait until nobody works on a job."""
        while self._holders:
            await asyncio.wait(list(self._holders))

    async def _work(self, http: httpx.AsyncClient, node: str, held: list[Delivery], dice: random.Random) -> None:
        if self.draining:
            await self._settle(http, Verb.ACK, node, held)
            return
        dice.shuffle(held)
        cut = len(held) * 8 // 10
        well, badly = held[:cut], held[cut:]
        kind = dice.random()
        if kind < 0.15:
            await asyncio.sleep(dice.uniform(0, 0.5))
            await self._settle(http, Verb.EXTEND, node, well)
            await asyncio.sleep(dice.uniform(0, 0.9))
        elif kind < 0.3:
            await asyncio.sleep(dice.uniform(0, 0.9))
        await self._settle(http, Verb.ACK, node, well)
        match dice.randrange(4):
            case 0:
                await self._settle(http, Verb.NACK, node, badly)
            case 1 | 2:  # zombies: they come back when their leases have just ended, and others begin
                ended = max((one.deadline for one in badly), default=0)
                await asyncio.sleep((ended - _now()) / 1000 + dice.uniform(0.002, 0.2))
                await self._settle(http, dice.choice(list(Verb)), node, badly)
            case _:
                pass  # a worker that died

    async def _settle(self, http: httpx.AsyncClient, verb: Verb, node: str, held: list[Delivery]) -> None:
        if not held:
            return
        body: dict[str, Any] = {
            "node": node,
            "seqs": [one.seq for one in held],
            "lease_ids": [one.lease for one in held],
        }
        if verb is Verb.EXTEND:
            body["lease_ms"] = LEASE_MS
        sent = _now()
        outcome, answer = await self._call(http, verb.value, body)
        ended = _now()
        skipped = set(answer.get("skipped", ()))
        deadlines = answer.get("deadlines", {})
        for one in held:
            mine = Outcome.REFUSED if one.seq in skipped else outcome
            deadline = deadlines.get(str(one.seq), 0)
            self.history.settlements.append(Settlement(verb, one.seq, one.lease, sent, ended, mine, deadline))
        if verb is Verb.ACK and outcome is Outcome.DONE:
            self.progress.acked = max(self.progress.acked, sent)

    async def _call(self, http: httpx.AsyncClient, verb: str, body: dict[str, Any]) -> tuple[Outcome, dict[str, Any]]:
        path = f"/v0/topics/{self.topic}" + (f"/{verb}" if verb else "")
        try:
            answer = await http.post(path, json=body)
        except httpx.ConnectError as error:
            # The supervisor holds the listening socket: it is never closed.
            self.surprises.append(f"{path}: {error!r}")
            return Outcome.REFUSED, {}
        except httpx.TimeoutException as error:
            self.surprises.append(f"{path}: {error!r}")
            return Outcome.IN_DOUBT, {}
        except httpx.TransportError:
            return Outcome.IN_DOUBT, {}
        if answer.is_success:
            return Outcome.DONE, answer.json()
        if answer.status_code != 503:
            self.surprises.append(f"{path}: {answer.status_code} {answer.text[:300]}")
        return (Outcome.IN_DOUBT if answer.status_code >= 500 else Outcome.REFUSED), {}


def _payload(id: int) -> dict[str, Any]:
    return {"id": id, "text": random.Random(id).randbytes(id % 60).hex()}


def _delivery(job: dict[str, Any], sent: float, ended: float) -> Delivery:
    id = job["data"]["id"]
    intact = job["data"] == _payload(id)
    return Delivery(id, job["$seq"], job["lease_id"], job["deliveries"], job["deadline"], LEASE_MS, sent, ended, intact)


def _now() -> float:
    return time.time() * 1000
