"""What operators look at and run: `client.admin`."""

from __future__ import annotations

from datetime import datetime

from holdfast import models
from holdfast._body import moment_of
from holdfast._decode import page_of
from holdfast._verbs import Resource, S, listing, verb
from holdfast._wire import Request, encode, path, reads, reads_page


class Admin(Resource[S]):
    """For operators: a key needs the scope admin, for every topic."""

    @verb
    def horizon(self) -> Request[models.Horizon]:
        """Who keeps PostgreSQL from removing dead rows."""
        return Request("GET", path("admin", "horizon"), reads(models.Horizon))

    @listing
    def audit(
        self,
        *,
        actor: str | None = None,
        subject: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> Request[models.Page[models.AuditEntry]]:
        """Who changed what, the newest first."""
        return Request(
            "GET",
            path("admin", "audit"),
            reads_page(models.AuditEntry, "entries"),
            params={
                "actor": actor,
                "subject": subject,
                "action": action,
                "since": moment_of(since),
                "page_size": page_size,
                "cursor": cursor,
            },
        )

    @verb
    def reapers(self) -> Request[tuple[models.Reaper, ...]]:
        """The background sweeps, and how their last runs went."""
        return Request(
            "GET", path("admin", "reapers"), lambda reply: page_of(models.Reaper, "reapers", reply.body).items
        )

    @verb
    def reaper_runs(self, name: str) -> Request[tuple[models.ReaperRun, ...]]:
        """Its last runs that moved something, or failed, the last one first."""
        return Request(
            "GET",
            path("admin", "reapers", name, "runs"),
            lambda reply: page_of(models.ReaperRun, "runs", reply.body).items,
        )

    @verb
    def run_reaper(self, name: str, *, wait_ms: int = 55_000) -> Request[models.RunReaper]:
        """Run a sweep now, or join one that runs; wait up to `wait_ms` (55,000) for its end."""
        return Request(
            "POST",
            path("admin", "reapers", name, "run"),
            reads(models.RunReaper),
            body=encode({"wait_ms": wait_ms}),
            wait_ms=wait_ms,
        )
