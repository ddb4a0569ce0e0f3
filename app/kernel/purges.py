"""Deletions of jobs by status, in batches, of topics, and of whole days of the tables by day. If days are kept as
files, they are deleted only after that."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from app.base.db import sql
from app.errors import TopicNotFound
from app.kernel import jobs
from app.kernel.batching import retry_lost_race
from app.kernel.counts import inspector
from app.kernel.engine import Core
from app.kernel.jobs import Status
from app.kernel.logs.log import TagMatch
from app.kernel.topics import store
from app.kernel.topics.settings import TopicType

if TYPE_CHECKING:
    import asyncpg

    from app.base.db.pool import Pool
    from app.kernel.audit.trail import Actor
    from app.kernel.topics.policy import Policy

AT_ONCE: Final = 5_000

log = logging.getLogger(__name__)

_SQL: Final = sql.load_all(__package__)
_DROP = _SQL["drop_partitions"]
_DROP_RESULTS = _SQL["drop_results"]


class Purges(Core):
    """Deletes jobs and topics, in batches."""

    async def purge(self, policy: Policy, statuses: Sequence[Status]) -> int:
        """Delete the jobs that have these statuses now, also leased ones. Returns how many.

        Deletes in batches, so other verbs run in between. A purge that is interrupted has done a part.
        """
        topic, db = policy.topic, self._engine.verbs(policy)
        drawn = (await inspector.draws(db, [topic])).get(topic.id)
        if drawn is None:
            return 0
        count = 0
        after: int | None = 0
        # It locks by seq, and enqueues of jobs with keys lock by key.
        while after is not None and after < drawn.drawn:
            done = await retry_lost_race(
                partial(jobs.purge, db, topic, statuses, after=after, upto=drawn.drawn, limit=AT_ONCE)
            )
            self._engine.note_move(topic, ready=-done.ready, in_flight=-done.in_flight)
            count, after = count + done.count, done.last_seq
        await self._engine.groups.let_next_through(policy)
        return count

    async def delete_topic(self, policy: Policy, *, if_empty: bool, by: Actor) -> bool:
        """Delete a topic and everything in it. Returns whether it existed.

        Its jobs are deleted first, in batches, so the transaction that deletes the topic is short, and others wait only
        for that one. A deletion that is interrupted has done a part. With `if_empty` there are no batches. Raises
        TopicNotEmpty.
        """
        gone = 0
        if not if_empty:
            with suppress(TopicNotFound):
                if policy.config.type is TopicType.LOG:
                    await self._engine.logs.delete(policy, None, TagMatch())
                else:
                    gone = await self.purge(policy, tuple(Status))
        name, db = policy.topic.name, self._engine.pools.rest
        deleted = await store.delete(db, name, if_empty=if_empty, by=by, gone=gone)
        self._engine.policies.announce(name)
        self._engine.drop(policy.topic)
        return deleted


async def drop_days(rest: Pool, table: str, kept: int, *, only_archived: bool) -> int:
    """Drop days that are more than `kept` days ago. Returns how many. Raises asyncpg's errors."""
    return _count_days(table, await rest.fetchrow(_DROP, table, kept, only_archived))


async def drop_days_of_results(rest: Pool, *, only_archived: bool) -> int:
    """Drop days of results that can't be shown any more. Returns how many. Raises asyncpg's errors."""
    return _count_days("results", await rest.fetchrow(_DROP_RESULTS, only_archived))


def _count_days(table: str, row: asyncpg.Record | None) -> int:
    assert row is not None
    if row["held"]:
        log.warning(
            "days of %s that are due to be dropped, but are not in files yet: %d. Run the pipeline `archive`",
            table,
            row["held"],
        )
    gone: int = row["gone"]
    return gone
