"""What a topic's jobs failed with, by the kind of their errors, wherever they are now; and purges of one kind.
docs/dead-letters.md."""

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

NO_ERROR: Final = "The lease ended without a word"  # title of the cluster of jobs without an error
CLUSTERS_LOOKED_AT: Final = 1_000
JOBS_COUNTED: Final = 200_000
THE_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
BATCH: Final = 1_000  # jobs that one statement of a purge looks at
LARGEST: Final = 20  # clusters that pages show
LATELY: Final = timedelta(hours=1)
COUNT_SECONDS: Final = 3  # that counting for a page may take


class Failure(msgspec.Struct, frozen=True):
    """A cluster: failed jobs and dead letters whose errors are of one kind. Times are in ms since 1970.

    `title` is what their errors have in common, or NO_ERROR. There are `count`, or `at_least` so many,
    which had `fewest` to `most` deliveries. The newest is at topic and seq.
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
    """Clusters, the largest first. `more`: there may be others."""

    clusters: list[Failure]
    more: bool


class FailureReader(Core):
    """Reads and purges what failed in a topic: in the topic itself, and in its dead-letter topic."""

    async def read(self, policy: Policy, since: datetime | None, limit: int) -> Failures:
        """The `limit` largest clusters; with `since`, only of jobs that failed for good from then on.

        Looks at CLUSTERS_LOOKED_AT clusters of each of the two topics, and counts JOBS_COUNTED jobs, shared among them.
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
        """The LARGEST clusters, or those of the last hour, at most half a minute old: for pages. None if they can't be
        had within `patience` seconds. Raises what asyncpg raises."""

        async def read() -> Failures | None:
            try:
                async with asyncio.timeout(COUNT_SECONDS):
                    return await self.read(policy, datetime.now(UTC) - LATELY if lately else None, LARGEST)
            except (TimeoutError, *TOO_SLOW):
                return None

        key = ("failures", policy.topic.id, policy.config.dead_letter, lately)
        return await self._engine.readings.within(key, read, patience)

    async def purge(self, policy: Policy, cluster: str, by: Actor) -> int:
        """Delete the jobs that are in a cluster by now, for good: how many. Leases on them are lost. The audit trail
        has an entry before anything is deleted.

        It works in batches: other verbs come in between, and a purge that breaks off has done a part.
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
        """Delete the jobs of a cluster that are in one topic, failed in one topic, and failed for good by `until`."""
        db, topic, count = self._engine.verbs(holder), holder.topic, 0
        after: tuple[datetime, int] | None = (THE_BEGINNING, 0)
        while after is not None:
            run = partial(db.fetchrow, _PURGE, topic.name, failed_in, cluster, *after, until, BATCH)
            row = await retry_lost_race(run)
            assert row is not None, "it answers one row always"
            self._engine.note_move(topic, ready=-row["ready"], in_flight=-row["in_flight"])
            count += row["deleted"]
            if row["deleted"] == row["picked"]:  # else another verb changed one meanwhile: again from the same place
                after = None if row["last_at"] is None else (row["last_at"], row["last_seq"])
        await self._engine.groups.let_next_through(holder)
        return count

    async def _dead_letter(self, policy: Policy) -> Policy | None:
        """The queue that takes the topic's dead letters, if there is one."""
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
