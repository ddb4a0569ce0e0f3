"""What a topic's jobs failed with, wherever they are now; and purges of one kind. docs/failures.md."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from app.errors import TopicNotFound
from app.features.dead_letters import failures
from app.kernel.audit import trail
from app.kernel.audit.trail import Action, Actor
from app.kernel.batching import tried_again
from app.kernel.engine import Core
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import TopicType

if TYPE_CHECKING:
    from app.features.dead_letters.failures import Place
    from app.kernel.model import Topic

AT_ONCE: Final = 1_000


class FailureReader(Core):
    """Knows where jobs are that failed in a topic."""

    async def read(self, policy: Policy, since: datetime | None, limit: int) -> failures.Failures:
        """The `limit` largest clusters of what is out, with `since` of what went out from then on."""
        dead = await self._dead_letter(policy)
        name = None if dead is None else dead.topic.name
        return await failures.read(self._engine.pools.rest, policy.topic.name, name, since, limit)

    async def purge(self, policy: Policy, cluster: str, by: Actor) -> int:
        """Delete the jobs of a cluster that are out by now, for good: how many. A lease on one is lost. The audit trail
        has an entry before anything is deleted.

        In batches: other verbs come in between, and a purge that breaks off has done a part.
        """
        rest, topic = self._engine.pools.rest, policy.topic.name
        await trail.record(rest, by, Action.CLUSTER_PURGED, topic, {"cluster": cluster})
        dead = await self._dead_letter(policy)
        name = None if dead is None else dead.topic.name
        places, until = await failures.places(rest, topic, name)
        count = 0
        for place in places:
            holder = dead if dead is not None and place.topic == name else policy
            count += await self._purge(holder, place, cluster, until)
        return count

    async def _purge(self, holder: Policy, place: Place, cluster: str, until: datetime) -> int:
        topic: Topic = holder.topic
        db, count = self._engine.verbs(holder), 0
        after: tuple[datetime, int] | None = (failures.THE_BEGINNING, 0)
        while after is not None:
            run = partial(failures.purge, db, place, cluster, after=after, until=until, limit=AT_ONCE)
            done = await tried_again(run)
            self._engine.note_move(topic, ready=-done.ready, in_flight=-done.in_flight)
            count, after = count + done.count, done.last
        await self._engine.groups.left(holder)
        return count

    async def _dead_letter(self, policy: Policy) -> Policy | None:
        """The queue that its dead letters are in; None where there is none."""
        if policy.config.dead_letter is None:
            return None
        try:
            dead = await self._engine.policies.get(policy.config.dead_letter)
        except TopicNotFound:
            return None
        return dead if dead.config.type is TopicType.QUEUE else None
