"""Removing jobs that have no deliveries left or have expired. docs/semantics.md, sections 2 and 10."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import asyncpg

from app.base.db.pool import Pool
from app.errors import TopicNotFound
from app.kernel.batching import retry_lost_race
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
    """Removes spent jobs: to the dead-letter topic, or as failed jobs, by the topic's settings."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    async def remove_spent(self, policy: Policy, spent: Sequence[Spent]) -> set[int]:
        """Remove jobs that have no deliveries left, or that their holders fail. Returns the places in `spent`, which
        must ascend by seq, of the jobs that were removed.

        Cancelled jobs end for good. Others move to the dead-letter topic, which is created as a queue if it does not
        exist, and gets records if it is a log. Without a dead-letter topic, or if on_exhausted is fail, they stay as
        failed jobs.
        """
        try:
            return await self._remove_spent(policy, spent)
        except (asyncpg.InternalServerError, log.Gone):
            # A sequence or a log is missing: another process deleted the dead-letter topic. It is created again now.
            if policy.config.dead_letter is None:
                raise
            self._state.policies.forget(policy.config.dead_letter)
            return await self._remove_spent(policy, spent)

    async def _remove_spent(self, policy: Policy, spent: Sequence[Spent]) -> set[int]:
        plain = [i for i, job in enumerate(spent) if not job.cancelled]
        gone = (
            {plain[i] for i in await self._remove_and_announce(policy, [spent[i] for i in plain])} if plain else set()
        )
        # The statements above leave jobs that were cancelled meanwhile.
        left = [i for i, job in enumerate(spent) if i not in gone and job.lease is not None]
        if left:
            ended = await exits.cancel_held(self._state.verbs(policy), policy.topic, [spent[i] for i in left])
            self._state.metrics.topic(policy.topic.name).cancelled.add(len(ended))
            gone |= {left[i] for i in ended}
        if gone:
            await self._state.groups.let_next_through(policy)
        return gone

    async def _remove_and_announce(self, policy: Policy, spent: Sequence[Spent]) -> set[int]:
        """Remove jobs, and send their users' events."""
        owners = await self._state.users.find_owners(policy, [job.seq for job in spent])
        moved, failed = await self._remove(policy, spent)
        for event, places in (("dead_lettered", moved), ("failed", failed)):
            self._state.users.tell(policy, event, [spent[i].seq for i in sorted(places)], owners)
        return moved | failed

    async def _remove(self, policy: Policy, spent: Sequence[Spent]) -> tuple[set[int], set[int]]:
        """The places of the jobs that moved to the dead-letter topic, and of those that stay as failed jobs."""
        target = await self._dead_letter(policy)
        if target is None:
            return set(), await self._fail(policy, spent)
        if target.config.type is TopicType.LOG:
            return await self._move_to_log(policy, spent, target)
        db = self._state.verbs(policy)
        seen, numbers = exits.ExitCounts(), self._state.metrics.topic(policy.topic.name)
        done = await exits.move_to_dead_letters(
            db, policy.topic, policy.budget, spent, target.topic, seen=seen, has_webhook=policy.has_webhook
        )
        numbers.dead_lettered.add(len(done))
        numbers.suspected.add(seen.suspects)
        if done:
            self._state.writes.note(target.topic.id)
        self._state.note_move(target.topic, ready=len(done))
        self._state.lanes.forget(target.topic.id)
        self._state.waiters.announce(target.topic.id, len(done))
        return done, set()

    async def _move_to_log(self, policy: Policy, spent: Sequence[Spent], target: Policy) -> tuple[set[int], set[int]]:
        """Move the jobs in as many transactions as their bytes need."""
        numbers = self._state.metrics.topic(policy.topic.name)
        recorded: set[int] = set()
        failed: set[int] = set()
        while left := sorted(set(range(len(spent))) - recorded - failed):
            async with self._state.verbs(policy).acquire() as db, db.transaction():
                part = await exits.move_to_log(
                    db,
                    policy.topic,
                    policy.budget,
                    [spent[i] for i in left],
                    target.topic,
                    limits=target.log_limits,
                    has_webhook=policy.has_webhook,
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

    async def remove_exhausted(self, policy: Policy, lanes: Sequence[Lane]) -> int:
        """Remove a batch of jobs of these lanes whose last lease ran out. Returns how many."""
        spent = await exits.find_exhausted(self._state.pools.hot, policy.topic, policy.budget, lanes, BATCH)
        return len(await self.remove_spent(policy, spent)) if spent else 0

    async def remove_all_exhausted(self, policy: Policy) -> int:
        """Remove a batch of jobs of all lanes whose last lease ran out. Returns how many."""
        return await self.remove_exhausted(policy, await ordering.read_lanes(self._state.pools.rest, policy.topic))

    async def expire(self, policy: Policy, db: Pool | None = None, limit: int = BATCH) -> int:
        """As exit_rows.expire, for up to `limit` jobs. Returns how many. `db`: another pool than the topic's."""
        seen = exits.ExitCounts()
        count = await exits.expire(db or self._state.verbs(policy), policy.topic.name, limit, seen=seen)
        if count:
            numbers = self._state.metrics.topic(policy.topic.name)
            numbers.expired.add(count - seen.cancelled)
            numbers.cancelled.add(seen.cancelled)
            numbers.suspected.add(seen.suspects)
            await self._state.groups.let_next_through(policy)
        return count

    async def end_superseded(self, policy: Policy) -> int:
        """End jobs whose lease ran out while a newer job with their key waits. Returns how many."""
        count = 0
        after: exits.Lease | None = exits.Lease()
        while after is not None:
            ended, after = await exits.end_superseded(
                self._state.verbs(policy), policy.topic, policy.budget, after, BATCH
            )
            count += ended
            if ended:
                await self._state.groups.let_next_through(policy)
        return count

    async def delete_key(self, policy: Policy, tenant: str, key: str) -> int:
        """Delete all jobs of a tenant and key, in any state, in batches. Returns how many."""
        topic, db = policy.topic, self._state.verbs(policy)
        count, more = 0, True
        while more:
            gone = await retry_lost_race(lambda: exits.delete_key(db, topic, tenant, key, BATCH))
            self._state.note_move(topic, ready=-gone.ready, in_flight=-gone.leased)
            self._state.make_room(policy, gone.leased)
            count, more = count + gone.count, gone.more
        await self._state.groups.let_next_through(policy)
        return count

    async def _fail(self, policy: Policy, spent: Sequence[Spent]) -> set[int]:
        seen, numbers = exits.ExitCounts(), self._state.metrics.topic(policy.topic.name)
        done = await exits.fail(
            self._state.verbs(policy),
            policy.topic,
            policy.budget,
            spent,
            seen=seen,
            has_webhook=policy.has_webhook,
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
