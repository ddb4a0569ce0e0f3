"""What the parts of one engine have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from app.base.db.pool import Pool, Pools
    from app.base.metrics import Numbers
    from app.kernel.claim.fairness import Fairness
    from app.kernel.claim.limits import Throttle
    from app.kernel.claim.marks import Marks
    from app.kernel.claim.ordering import Lanes
    from app.kernel.claim.waiters import Waiters
    from app.kernel.counts.counters import Counters
    from app.kernel.enqueue.byte_limit import Room
    from app.kernel.groups.groups import Groups
    from app.kernel.logs.readers import Readers
    from app.kernel.model import Topic
    from app.kernel.schemas.checks import Checks
    from app.kernel.topics.cache import Policies
    from app.kernel.topics.last_used import UseTimes
    from app.kernel.topics.policy import Policy
    from app.kernel.user_events.users import Users


class Shared(msgspec.Struct, frozen=True):
    """The database, and what this process remembers of it."""

    pools: Pools
    policies: Policies
    lanes: Lanes
    marks: Marks
    counters: Counters
    waiters: Waiters
    readers: Readers
    throttle: Throttle
    max_waiting: int  # calls that may wait for one verb of one topic
    metrics: Numbers
    room: Room
    checks: Checks
    groups: Groups
    users: Users
    fairness: Fairness
    writes: UseTimes
    signs: bool = False  # whether the service has a secret for webhooks

    def moved(self, topic: Topic, *, ready: int = 0, in_flight: int = 0) -> None:
        """This process has moved jobs of a topic, and so changed its counts."""
        self.marks.note_move(topic)
        self.counters.moved(topic.id, ready=ready, in_flight=in_flight)

    def freed(self, policy: Policy, jobs: int, tenants: Iterable[str] = ()) -> None:
        """So many jobs of a topic, of these tenants as far as that is known, are not under lease any more: who was at
        its limit may have others."""
        if jobs and policy.config.tenant_limits:
            self.waiters.added(policy.topic.id, jobs, self.fairness.freed(policy.topic.id).union(tenants))

    def verbs(self, policy: Policy) -> Pool:
        """The pool for a topic's verbs: whether they wait for the flush is the topic's choice."""
        return self.pools.verbs(durable=policy.config.durable)
