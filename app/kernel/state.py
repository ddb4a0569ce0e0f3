"""The state that all verbs of one engine share."""

from __future__ import annotations

from collections.abc import Iterable

from app.base.db.pool import Pool, Pools
from app.base.metrics import MOST_TOPICS, Metrics
from app.kernel.claim.fairness import Fairness
from app.kernel.claim.limits import Buckets, Throttle
from app.kernel.claim.marks import Marks
from app.kernel.claim.ordering import Lanes
from app.kernel.claim.waiters import Waiters
from app.kernel.counts.counters import Counters
from app.kernel.enqueue.bounds import ByteQuota
from app.kernel.groups import Groups
from app.kernel.logs.readers import Readers
from app.kernel.model import Topic
from app.kernel.schemas.store import Checks
from app.kernel.topics.cache import Policies
from app.kernel.topics.last_used import Uses
from app.kernel.topics.policy import Policy
from app.kernel.user_events import Users


class EngineState:
    """The database, and what this process knows of it.

    max_waiting: how many calls can wait for one verb of one topic.
    signs: whether the service has a secret for webhooks.
    """

    def __init__(
        self,
        pools: Pools,
        policies: Policies,
        *,
        max_waiting: int,
        metrics: Metrics | None = None,
        most_topics: int = MOST_TOPICS,
        max_total_bytes: int = 0,
        signs: bool = False,
        buckets: Buckets | None = None,
    ) -> None:
        self.pools = pools
        self.policies = policies
        self.max_waiting = max_waiting
        self.most_topics = most_topics
        self.metrics = metrics or Metrics(most_topics=most_topics)
        self.signs = signs
        self.lanes = Lanes()
        self.fairness = Fairness()
        self.marks = Marks(pools, self.fairness)
        self.counters = Counters(pools, self.marks)
        self.waiters = Waiters(pools, self.marks)
        self.waiters.claimable.subscribe(self.fairness.note_claimable)
        self.readers = Readers(pools)
        self.throttle = Throttle(pools, self.waiters.wake, buckets)
        self.room = ByteQuota(pools, max_total_bytes)
        self.groups = Groups(pools, policies, self.marks, self.counters, self.waiters)
        self.checks = Checks(pools.rest, policies, self.metrics)
        self.users = Users(pools, self.metrics, max_waiting)
        self.uses = Uses(pools)
        self.reads, self.writes = self.uses.reads, self.uses.writes

    def note_move(self, topic: Topic, *, ready: int = 0, in_flight: int = 0) -> None:
        """This process has moved jobs of a topic. Updates its counts."""
        self.marks.note_move(topic)
        self.counters.add(topic.id, ready=ready, in_flight=in_flight)

    def make_room(self, policy: Policy, jobs: int, tenants: Iterable[str] = ()) -> None:
        """Jobs of a topic are not leased any more, of these tenants if known. Their tenants can have other jobs."""
        if jobs and policy.config.tenant_limits:
            self.waiters.announce(policy.topic.id, jobs, self.fairness.note_freed(policy.topic.id).union(tenants))

    def verbs(self, policy: Policy) -> Pool:
        """The pool for a topic's verbs. The topic's durability decides whether they wait for the flush."""
        return self.pools.verbs(durable=policy.config.durable)
