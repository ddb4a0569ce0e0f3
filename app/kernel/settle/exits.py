"""Taking jobs out that have had their last delivery, or outlived their time. docs/semantics.md, sections 2 and 10."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import asyncpg

from app.base.db.pool import Pool
from app.errors import TopicNotFound
from app.kernel.batching import tried_again
from app.kernel.claim import ordering
from app.kernel.logs import log
from app.kernel.model import Lane
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exit_rows import Spent
from app.kernel.state import EngineState
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import Config, Exhaustion, TopicType

BATCH: Final = 1_000


class Exits:
    """Knows where a topic's spent jobs go."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    async def retire(self, policy: Policy, spent: Sequence[Spent]) -> set[int]:
        """Take out jobs that have no delivery left, or whose holder gives them up: the places in `spent` (ascending by
        seq) that went.

        Those that were cancelled for good, the others to the dead-letter topic, which is created as a queue when it is
        absent, and gets records if it is a log; where none is named, or on_exhausted is fail, they stay as failed.
        """
        try:
            return await self._retire(policy, spent)
        except (asyncpg.InternalServerError, log.Gone):
            # What a missing sequence and a missing log raise: the dead-letter topic was deleted through another
            # process, and is made anew now.
            if policy.config.dead_letter is None:
                raise
            self._state.policies.forget(policy.config.dead_letter)
            return await self._retire(policy, spent)

    async def _retire(self, policy: Policy, spent: Sequence[Spent]) -> set[int]:
        plain = [i for i, job in enumerate(spent) if not job.cancelled]
        gone = {plain[i] for i in await self._give_up(policy, [spent[i] for i in plain])} if plain else set()
        # Also what was cancelled since it was looked at, which is left then.
        left = [i for i, job in enumerate(spent) if i not in gone and job.lease is not None]
        if left:
            ended = await exits.cancel_held(self._state.verbs(policy), policy.topic, [spent[i] for i in left])
            self._state.metrics.topic(policy.topic.name).cancelled.add(len(ended))
            gone |= {left[i] for i in ended}
        if gone:
            await self._state.groups.let_next_through(policy)
        return gone

    async def _give_up(self, policy: Policy, spent: Sequence[Spent]) -> set[int]:
        """Take them out, and let their users hear of it."""
        whose = await self._state.users.whose(policy, [job.seq for job in spent])
        buried, failed = await self._take_out(policy, spent)
        for event, places in (("dead_lettered", buried), ("failed", failed)):
            self._state.users.tell(policy, event, [spent[i].seq for i in sorted(places)], whose)
        return buried | failed

    async def _take_out(self, policy: Policy, spent: Sequence[Spent]) -> tuple[set[int], set[int]]:
        """The places that went to the dead-letter topic, and those that failed where they were."""
        target = await self._dead_letter(policy)
        if target is None:
            return set(), await self._fail(policy, spent)
        if target.config.type is TopicType.LOG:
            return await self._inter(policy, spent, target)
        db = self._state.verbs(policy)
        seen, numbers = exits.ExitCounts(), self._state.metrics.topic(policy.topic.name)
        done = await exits.bury(
            db, policy.topic, policy.budget, spent, target.topic, seen=seen, told=policy.hears_of_all_jobs
        )
        numbers.dead_lettered.add(len(done))
        numbers.suspected.add(seen.suspects)
        if done:
            self._state.writes.note(target.topic.id)
        self._state.note_move(target.topic, ready=len(done))
        self._state.lanes.forget(target.topic.id)
        self._state.waiters.announce(target.topic.id, len(done))
        return done, set()

    async def _inter(self, policy: Policy, spent: Sequence[Spent], target: Policy) -> tuple[set[int], set[int]]:
        """As many transactions as their bytes need."""
        numbers = self._state.metrics.topic(policy.topic.name)
        recorded: set[int] = set()
        failed: set[int] = set()
        while left := sorted(set(range(len(spent))) - recorded - failed):
            async with self._state.verbs(policy).acquire() as db, db.transaction():
                part = await exits.inter(
                    db,
                    policy.topic,
                    policy.budget,
                    [spent[i] for i in left],
                    target.topic,
                    limits=target.log_limits,
                    told=policy.hears_of_all_jobs,
                )
            if not part.recorded | part.failed:
                break
            recorded |= {left[i] for i in part.recorded}
            failed |= {left[i] for i in part.failed}
            numbers.dead_lettered.add(len(part.recorded))
            numbers.failed.add(len(part.failed))
            numbers.suspected.add(part.suspects)
            if part.recorded:
                self._state.readers.note_append(target.topic.id, len(part.recorded))
        return recorded, failed

    async def exhaust(self, policy: Policy, lanes: Sequence[Lane]) -> int:
        """Take out a batch of these lanes' jobs whose last delivery ended in silence: how many."""
        spent = await exits.find_exhausted(self._state.pools.hot, policy.topic, policy.budget, lanes, BATCH)
        return len(await self.retire(policy, spent)) if spent else 0

    async def exhaust_all(self, policy: Policy) -> int:
        """Take out a batch of all lanes' jobs whose last delivery ended in silence: how many."""
        return await self.exhaust(policy, await ordering.read_lanes(self._state.pools.rest, policy.topic))

    async def expire(self, policy: Policy, db: Pool | None = None, limit: int = BATCH) -> int:
        """Mark up to `limit` jobs whose time to live has passed, and end those that were cancelled, once nobody holds
        them: how many. `db`: by another pool than the topic's."""
        seen = exits.ExitCounts()
        count = await exits.expire(db or self._state.verbs(policy), policy.topic.name, limit, seen=seen)
        if count:
            numbers = self._state.metrics.topic(policy.topic.name)
            numbers.expired.add(count - seen.cancelled)
            numbers.cancelled.add(seen.cancelled)
            numbers.suspected.add(seen.suspects)
            await self._state.groups.let_next_through(policy)
        return count

    async def supersede(self, policy: Policy) -> int:
        """End jobs whose lease ended in silence, where a newer one of their key waits: how many."""
        count = 0
        after: exits.Lease | None = exits.Lease()
        while after is not None:
            ended, after = await exits.supersede(self._state.verbs(policy), policy.topic, policy.budget, after, BATCH)
            count += ended
            if ended:
                await self._state.groups.let_next_through(policy)
        return count

    async def delete_key(self, policy: Policy, tenant: str, key: str) -> int:
        """Delete all jobs of a tenant and key, for good, whatever their state: how many. In batches."""
        topic, db = policy.topic, self._state.verbs(policy)
        count, more = 0, True
        while more:
            gone = await tried_again(lambda: exits.delete_key(db, topic, tenant, key, BATCH))
            self._state.note_move(topic, ready=-gone.ready, in_flight=-gone.leased)
            self._state.make_room(policy, gone.leased)
            count, more = count + gone.count, gone.more
        await self._state.groups.let_next_through(policy)
        return count

    async def _fail(self, policy: Policy, spent: Sequence[Spent]) -> set[int]:
        seen, numbers = exits.ExitCounts(), self._state.metrics.topic(policy.topic.name)
        done = await exits.fail(
            self._state.verbs(policy), policy.topic, policy.budget, spent, seen=seen, told=policy.hears_of_all_jobs
        )
        numbers.failed.add(len(done))
        numbers.suspected.add(seen.suspects)
        return done

    async def _dead_letter(self, policy: Policy) -> Policy | None:
        if policy.config.on_exhausted is Exhaustion.FAIL or policy.config.dead_letter is None:
            return None
        name, target = policy.config.dead_letter, None
        while target is None:
            try:
                target = await self._state.policies.get(name)
            except TopicNotFound:
                config = Config(
                    type=TopicType.QUEUE,
                    durability=policy.config.durability,
                    dead_ttl_ms=policy.config.dead_ttl_ms,
                    configured=False,
                )
                await store.put(self._state.pools.rest, name, config)
                self._state.policies.announce(name)
        return target
