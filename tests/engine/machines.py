"""Engines as processes have them: with a memory of their own, on the same database; and what they ask it."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import asyncpg

from app.base.db.pool import Pools
from app.kernel.claim.consumer import Return
from app.kernel.claim.walk import Claimer
from app.kernel.engine import Engine
from app.kernel.model import Batch, Job, Seq
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import Policy
from tests.queue import statements
from tests.queue.calls import PATIENCE, batch, held

if TYPE_CHECKING:
    from app.base.db.pool import Pool

NAMES = {statement.text: statement.name for statement in statements.every()}
Hook = Callable[[], Awaitable[None]]
Make = Callable[..., Awaitable[Policy]]


class Log:
    """Which statements an engine sent, with what, and what the database refused. `before` and `after` are called round
    a statement, by its name: the place to let something else happen first."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, tuple[Any, ...]]] = []
        self.refused: list[asyncpg.PostgresError] = []
        self.before: dict[str, Hook] = {}
        self.after: dict[str, Hook] = {}

    def count(self, name: str) -> int:
        """How often a statement was sent."""
        return len(self.arguments(name))

    def arguments(self, name: str) -> list[tuple[Any, ...]]:
        """What a statement was sent with, each time."""
        return [arguments for sent, arguments in self.sent if sent == name]

    def __repr__(self) -> str:
        return f"Log({dict(Counter(name for name, _ in self.sent))})"


def sender(send: Callable[..., Awaitable[Any]], verb: str) -> Callable[..., Awaitable[Any]]:
    """One of the verbs by which statements are sent, for an object that sends all of them alike."""
    if verb not in ("fetch", "fetchrow", "fetchval", "execute"):
        raise AttributeError(verb)
    return functools.partial(send, verb)


class Watched:
    """The real pool; what goes through it is written down."""

    def __init__(self, pool: Pool, log: Log) -> None:
        self._pool = pool
        self._log = log

    def acquire(self, **options: Any) -> Any:
        return self._pool.acquire(**options)

    def __getattr__(self, verb: str) -> Any:
        return sender(self._around, verb)

    async def _around(self, verb: str, query: str, *args: Any, **options: Any) -> Any:
        name = NAMES[query]
        self._log.sent.append((name, args))
        if hook := self._log.before.get(name):
            await hook()
        try:
            answer = await getattr(self._pool, verb)(query, *args, **options)
        except asyncpg.PostgresError as error:
            self._log.refused.append(error)
            raise
        if hook := self._log.after.get(name):
            await hook()
        return answer


@dataclass(frozen=True, slots=True)
class Machine:
    """An engine, what it knows of topics, and what it sent."""

    engine: Engine
    policies: Policies
    pools: Pools
    log: Log

    async def enqueue(self, policy: Policy, records: Batch | int = 1) -> list[Seq]:
        """Enqueue these records, or so many."""
        made = batch(records) if isinstance(records, int) else records
        return await self.engine.enqueues.enqueue(policy, made, sum(map(len, made.payloads)))

    async def claim(
        self,
        policy: Policy,
        most: int = 1,
        *,
        wait: float = 0,
        node: str = "worker",
        lease_ms: int = 60_000,
        tenants: Collection[str] | None = None,
    ) -> list[Job]:
        """Claim up to `most` jobs, of these tenants if any are named, waiting up to `wait` seconds for the first."""
        among = None if tenants is None else frozenset(tenants)
        return await self.engine.claims.claim(Claimer(policy, node, most, lease_ms, tenants=among), wait)

    async def ack(self, policy: Policy, jobs: Collection[Job]) -> None:
        """Complete jobs, all of which are held."""
        assert len(await self.engine.settlements.ack(policy, [held(job) for job in jobs])) == len(jobs)

    async def nack(self, policy: Policy, jobs: Collection[Job], back: Return | None = None) -> None:
        """Return jobs, all of which are held."""
        backs = [back or Return()] * len(jobs)
        assert len(await self.engine.settlements.nack(policy, [held(job) for job in jobs], backs)) == len(jobs)

    async def leave(self, claiming: asyncio.Task[list[Job]]) -> None:
        """The caller of a claim leaves while its statement runs; what it got is given back."""

        async def cancel() -> None:
            del self.log.after["claim"]
            claiming.cancel()

        self.log.after["claim"] = cancel
        await asyncio.wait([claiming])
        assert claiming.cancelled()
        await self.given_back()

    async def given_back(self) -> None:
        """Wait until what callers left has been given back."""
        await self.engine.claims.drain()
        await self.engine.settlements.drain()


Start = Callable[..., Machine]


def new_machine(pools: Pools, *, max_waiting: int = 10_000, to_files: bool = False) -> Machine:
    """An engine like that of a process just started. Stop and drain it."""
    log = Log()
    watched = Pools(*(cast("Pool", Watched(pool, log)) for pool in (pools.hot, pools.hot_async, pools.rest)))
    policies = Policies(watched.rest)
    engine = Engine(watched, policies, max_waiting=max_waiting, to_files=to_files)
    return Machine(engine, policies, watched, log)


async def parked(machine: Machine, policy: Policy, count: int) -> None:
    """Wait until so many claims wait for work of a topic: they have asked, found nothing, and sleep."""
    give_up = time.monotonic() + PATIENCE
    while (waiting := machine.engine.waiters.count(policy.topic.name)) < count:
        assert time.monotonic() < give_up, f"{waiting} of {count} wait"
        await asyncio.sleep(0.002)
