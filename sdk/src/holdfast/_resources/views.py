"""Statistics and explanations of a topic."""

from __future__ import annotations

from datetime import datetime

from holdfast import models
from holdfast._body import moment_of
from holdfast._decode import read
from holdfast._resources.settings import NamedTopic
from holdfast._verbs import S, listing, verb
from holdfast._wire import ALL_MS, Request, reads, reads_page


class TopicViews(NamedTopic[S]):
    """Calls about a topic's state."""

    @listing
    def stats(
        self, *, page_size: int | None = None, cursor: str | None = None
    ) -> Request[models.Page[models.TenantStats]]:
        """Counts for each tenant, by name. Jobs without a tenant have the tenant ""."""
        return Request(
            "GET",
            self._path("stats"),
            reads_page(models.TenantStats, "tenants"),
            params={"by": "tenant", "page_size": page_size, "cursor": cursor},
        )

    @verb
    def totals(self) -> Request[models.TopicStats]:
        """Counts of the topic's jobs by state, including failed jobs."""
        return Request(
            "GET",
            self._path("stats"),
            lambda reply: read(models.TopicStats, reply.body["total"]),
            params={"by": "tenant", "page_size": 1},
        )

    @verb
    def stats_history(
        self,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        step: int | None = None,
        tenant: str | None = None,
    ) -> Request[models.StatsHistory]:
        """Outcomes of jobs over time, by default of the last hour. `step`: in seconds, a multiple of 60 (60)."""
        return Request(
            "GET",
            self._path("stats", "history"),
            reads(models.StatsHistory),
            params={"from": moment_of(start), "to": moment_of(end), "step": step, "tenant": tenant},
        )

    @verb
    def as_of(self, at: datetime) -> Request[models.AsOf]:
        """The state of the queue at a past time."""
        return Request("GET", self._path("asof"), reads(models.AsOf), params={"at": moment_of(at)})

    @listing
    def jobs_as_of(
        self,
        at: datetime,
        *,
        state: models.PastState | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Request[models.Page[models.PastJob]]:
        """The queue's jobs at a past time, by seq. `limit`: jobs per page (1,000)."""
        return Request(
            "GET",
            self._path("asof", "jobs"),
            reads_page(models.PastJob, "jobs"),
            params={"at": moment_of(at), "state": state, "limit": limit, "cursor": cursor},
        )

    @verb
    def explain(self, *, group: str | None = None, tenant: str | None = None) -> Request[models.TopicExplanation]:
        """Explain why a new job would not run at once, or why a group is stuck."""
        return Request(
            "GET",
            self._path("explain"),
            reads(models.TopicExplanation),
            params={"group": group, "tenant": tenant},
        )

    @verb
    def scale(self) -> Request[models.Scale]:
        """The topic's load, for autoscalers."""
        return Request("GET", self._path("scale"), reads(models.Scale))

    @verb
    def failures(self, *, limit: int | None = None, since: datetime | None = None) -> Request[models.Failures]:
        """Clusters of failed jobs, by the kind of error. `limit`: number of clusters (100). `since`: only jobs that
        failed after this time."""
        return Request(
            "GET",
            self._path("failures"),
            reads(models.Failures),
            params={"limit": limit, "since": moment_of(since)},
        )

    @verb
    def delete_failures(self, cluster: str) -> Request[models.ClusterDeleted]:
        """Delete all failed jobs of a cluster."""
        return Request("DELETE", self._path("failures", cluster), reads(models.ClusterDeleted), wait_ms=ALL_MS)
