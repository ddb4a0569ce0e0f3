"""Reads a topic's failures by kind of error, and purges one kind. docs/dead-letters.md."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import asyncpg
import msgspec

from app.base.db import sql
from app.base.outages import TOO_SLOW
from app.errors import TopicNotFound
from app.kernel.audit import trail
from app.kernel.audit.trail import Action, Actor
from app.kernel.batching import retry_lost_race
from app.kernel.engine import Core
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import TopicType

_SQL: Final = sql.load_all(__package__)
_FAILURES = _SQL["failures"]
_PLACES = _SQL["failure_places"]
_PURGE = _SQL["purge_cluster"]

NO_ERROR: Final = "No error recorded"  # title of the cluster of jobs without an error
CLUSTERS_LOOKED_AT: Final = 1_000
JOBS_COUNTED: Final = 200_000
THE_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
BATCH: Final = 1_000  # jobs searched by one statement of a purge
LARGEST: Final = 20  # clusters on a page
LATELY: Final = timedelta(hours=1)
COUNT_SECONDS: Final = 3  # timeout of a page's count


class Failure(msgspec.Struct, frozen=True):
    """A cluster: failed jobs and dead letters with the same kind of error. Times are in ms since 1970.

    `title`: what their errors have in common, or NO_ERROR. `at_least`: there may be more than `count` jobs.
    `fewest`, `mean`, `most`: their deliveries. `topic`, `seq` and `error`: the newest job.
    """

    cluster: str
    title: str
    count: int
    at_least: bool
    first_ms: int
    last_ms: int
    fewest: int
    mean: float
    most: int
    topic: str
    seq: int
    error: str | None


class Failures(msgspec.Struct, frozen=True):
    """Clusters, largest first. `more`: there may be others."""

    clusters: list[Failure]
    more: bool


class FailureReader(Core):
    """Reads and purges the failed jobs of a topic, in the topic itself and in its dead-letter topic."""

    async def read(self, policy: Policy, since: datetime | None, limit: int) -> Failures:
        """The `limit` largest clusters. With `since`, only jobs that failed for good from then on count.

        Reads at most CLUSTERS_LOOKED_AT clusters of each of the two topics, and counts at most JOBS_COUNTED jobs.
        """
        dead = await self._dead_letter(policy)
        rows = await self._engine.pools.rest.fetch(
            _FAILURES,
            policy.topic.name,
            None if dead is None else dead.topic.name,
            since or THE_BEGINNING,
            CLUSTERS_LOOKED_AT,
            JOBS_COUNTED,
            limit + 1,
        )
        more = len(rows) > limit or any(row["cut"] for row in rows)
        return Failures([_failure(row) for row in rows[:limit]], more)

    async def largest(self, policy: Policy, patience: float, *, lately: bool = False) -> Failures | None:
        """The LARGEST clusters for a page, at most half a minute old. None if not read within `patience` seconds.

        `lately`: count only jobs that failed within the last hour. Raises asyncpg's errors.
        """

        async def read() -> Failures | None:
            try:
                async with asyncio.timeout(COUNT_SECONDS):
                    return await self.read(policy, datetime.now(UTC) - LATELY if lately else None, LARGEST)
            except (TimeoutError, *TOO_SLOW):
                return None

        key = ("failures", policy.topic.id, policy.config.dead_letter, lately)
        return await self._engine.readings.within(key, read, patience)

    async def purge(self, policy: Policy, cluster: str, by: Actor) -> int:
        """Delete the jobs that are in a cluster now, including leased ones. Returns how many.

        Writes an audit entry first. Deletes in batches: after an error, the batches so far stay done.
        """
        rest, topic = self._engine.pools.rest, policy.topic.name
        await trail.record(rest, by, Action.CLUSTER_PURGED, topic, {"cluster": cluster})
        dead = await self._dead_letter(policy)
        name = None if dead is None else dead.topic.name
        rows = await rest.fetch(_PLACES, topic, name, CLUSTERS_LOOKED_AT)
        count = 0
        for row in rows:
            holder = dead if dead is not None and row["topic"] == name else policy
            count += await self._purge_place(holder, row["failed_in"], cluster, row["now"])
        return count

    async def _purge_place(self, holder: Policy, failed_in: str, cluster: str, until: datetime) -> int:
        db, topic, count = self._engine.verbs(holder), holder.topic, 0
        after: tuple[datetime, int] | None = (THE_BEGINNING, 0)
        while after is not None:
            run = partial(db.fetchrow, _PURGE, topic.name, failed_in, cluster, *after, until, BATCH)
            row = await retry_lost_race(run)
            assert row is not None, "the statement returns one row always"
            self._engine.note_move(topic, ready=-row["ready"], in_flight=-row["in_flight"])
            count += row["deleted"]
            if row["deleted"] == row["picked"]:  # otherwise another verb changed one: repeat
                after = None if row["last_at"] is None else (row["last_at"], row["last_seq"])
        await self._engine.groups.let_next_through(holder)
        return count

    async def _dead_letter(self, policy: Policy) -> Policy | None:
        if policy.config.dead_letter is None:
            return None
        try:
            dead = await self._engine.policies.get(policy.config.dead_letter)
        except TopicNotFound:
            return None
        return dead if dead.config.type is TopicType.QUEUE else None


def _failure(row: asyncpg.Record) -> Failure:
    named = {name: row[name] for name in Failure.__struct_fields__}
    return Failure(**named | {"title": row["title"] or NO_ERROR})
