"""Calls for operators: `client.admin`."""

from __future__ import annotations

from datetime import datetime

from holdfast import models
from holdfast._body import moment_of
from holdfast._decode import page_of
from holdfast._verbs import Resource, S, listing, verb
from holdfast._wire import Request, encode, path, reads, reads_page


class Admin(Resource[S]):
    """Calls for operators. They need a key with the scope admin for every topic."""

    @verb
    def horizon(self) -> Request[models.Horizon]:
        """Sessions, slots and transactions that keep PostgreSQL from removing dead rows."""
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
        """The audit trail, newest entries first."""
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
        """The background sweeps and their last runs."""
        return Request(
            "GET", path("admin", "reapers"), lambda reply: page_of(models.Reaper, "reapers", reply.body).items
        )

    @verb
    def reaper_runs(self, name: str) -> Request[tuple[models.ReaperRun, ...]]:
        """The last runs of a sweep that moved something or failed, newest first."""
        return Request(
            "GET",
            path("admin", "reapers", name, "runs"),
            lambda reply: page_of(models.ReaperRun, "runs", reply.body).items,
        )

    @verb
    def run_reaper(self, name: str, *, wait_ms: int = 55_000) -> Request[models.RunReaper]:
        """Run a sweep now, or join the current run. Waits up to `wait_ms` (55,000) for its end."""
        return Request(
            "POST",
            path("admin", "reapers", name, "run"),
            reads(models.RunReaper),
            body=encode({"wait_ms": wait_ms}),
            wait_ms=wait_ms,
        )
