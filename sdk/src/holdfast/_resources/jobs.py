"""Calls on jobs without a lease: list, change, cancel, requeue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal

from holdfast import models
from holdfast._body import data_of, fields_of, moment_of
from holdfast._resources.settings import NamedTopic
from holdfast._verbs import S, listing, verb
from holdfast._wire import Repeat, Request, encode, reads, reads_page, without_none


class Unchanged(Enum):
    """Marks a field that a change does not touch."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED


class TopicJobs(NamedTopic[S]):
    """Calls on jobs, by their seqs."""

    @listing
    def jobs(
        self,
        *,
        state: models.JobState | None = None,
        tenant: str | None = None,
        tag: str | None = None,
        key: str | None = None,
        group: str | None = None,
        priority: int | None = None,
        node: str | None = None,
        error: str | None = None,
        data: Iterable[str] = (),
        older_than_ms: int | None = None,
        order: Literal["newest", "oldest"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Request[models.Page[models.Job]]:
        """Jobs of the topic that match all filters, newest first by default.

        - node: the worker that holds the job.
        - error: a part of the job's last error.
        - data: conditions on the payload, each path=value.
        - older_than_ms: least age.
        - limit: jobs per page (1,000).
        """
        params = {
            **{"state": state, "tenant": tenant, "tag": tag, "key": key, "group": group, "priority": priority},
            **{"node": node, "error": error, "data": list(data) or None},
            **{"older_than_ms": older_than_ms, "order": order, "limit": limit, "cursor": cursor},
        }
        return Request("GET", self._path("jobs"), reads_page(models.Job, "jobs", topic=self.name), params=params)

    @verb
    def job(self, seq: int) -> Request[models.Job]:
        """A job. Raises NotFound if it does not exist any more."""
        return Request("GET", self._path("jobs", seq), reads(models.Job))

    @verb
    def history(self, seq: int, *, limit: int | None = None) -> Request[models.History]:
        """A job's history of events."""
        return Request(
            "GET",
            self._path("jobs", seq, "history"),
            reads(models.History),
            params={"limit": limit},
        )

    @verb
    def result(self, seq: int, *, wait_ms: int = 0) -> Request[models.Outcome]:
        """A job's result. With `wait_ms` (at most 60,000) it waits for the job's end."""
        return Request(
            "GET",
            self._path("jobs", seq, "result"),
            reads(models.Outcome),
            params={"wait_ms": wait_ms or None},
            wait_ms=wait_ms,
        )

    @verb
    def explain_job(self, seq: int) -> Request[models.JobExplanation]:
        """Explain why a job is not running."""
        return Request("GET", self._path("jobs", seq, "explain"), reads(models.JobExplanation))

    @verb
    def change(
        self,
        seq: int,
        *,
        data: Any = UNCHANGED,
        content_type: str | Unchanged = UNCHANGED,
        meta: Mapping[str, Any] | Unchanged | None = UNCHANGED,
        tag: str | Unchanged | None = UNCHANGED,
        priority: int | Unchanged = UNCHANGED,
        delay_ms: int | Unchanged = UNCHANGED,
        run_at: datetime | Unchanged = UNCHANGED,
    ) -> Request[models.Job]:
        """Change a waiting job. Omitted fields stay unchanged; None removes `meta` or `tag`. Raises NotPending if the
        job is not waiting."""
        changes = {
            "data": data
            if data is UNCHANGED
            else data_of(data, content_type if isinstance(content_type, str) else None),
            "content_type": content_type,
            "meta": meta,
            "tag": tag,
            "priority": priority,
            "delay_ms": delay_ms,
            "run_at": moment_of(run_at) if isinstance(run_at, datetime) else run_at,
        }
        body = encode({name: value for name, value in changes.items() if value is not UNCHANGED})
        return Request("PATCH", self._path("jobs", seq), reads(models.Job), body=body)

    @verb
    def cancel(
        self, seqs: int | Iterable[int] | None = None, *, filter: models.CancelFilter | None = None
    ) -> Request[models.Cancelled]:
        """Cancel jobs, by a seq, up to 1,000 seqs or a filter. Waiting jobs are deleted. Leased jobs are marked as
        cancelled."""
        return Request(
            "POST",
            self._path("cancel"),
            reads(models.Cancelled),
            body=encode(_which(seqs, filter)),
        )

    @verb
    def cancel_all(
        self, filter: models.CancelFilter, *, rate: int | None = None, dry_run: bool = False
    ) -> Request[models.Matched]:
        """Cancel all jobs that match a filter, in the background. The answer names an operation; follow it with
        `client.operations`. `rate`: jobs per second."""
        more = {"rate": rate, "dry_run": dry_run or None}
        return Request(
            "POST",
            self._path("operations"),
            reads(models.Matched),
            body=encode({"kind": "cancel", "filter": fields_of(filter)} | without_none(more)),
            repeat=Repeat.SAFE if dry_run else Repeat.IF_REFUSED,
        )

    @verb
    def release(
        self,
        seqs: int | Iterable[int] | None = None,
        *,
        group: str | None = None,
        tenant: str | None = None,
        node: str | None = None,
        visible_at: Iterable[datetime] | None = None,
        refund: bool = False,
    ) -> Request[models.Released]:
        """End leases, so that the jobs are ready at once. Late acks have no effect. Name a seq, up to 1,000 seqs, a
        group, or a node, for all jobs that it holds.

        - node: together with seqs or a group, only jobs that this worker holds.
        - visible_at: one for each seq. Only leases that still end at this time, as `jobs` returned it.
        - refund: don't count the deliveries.
        """
        until = None if visible_at is None else [round(at.timestamp() * 1000) for at in visible_at]
        which = {"seqs": _listed(seqs), "group": group, "tenant": tenant, "node": node, "visible_at": until}
        body = encode(without_none(which | {"refund": refund or None}))
        return Request("POST", self._path("release"), reads(models.Released), body=body, repeat=Repeat.IF_REFUSED)

    @verb
    def requeue(
        self,
        seqs: int | Iterable[int] | None = None,
        *,
        filter: models.RequeueFilter | None = None,
        rate: int | None = None,
        canary: models.Canary | None = None,
        dry_run: bool = False,
    ) -> Request[models.Matched]:
        """Requeue dead letters and failed jobs, by up to 1,000 seqs or by a filter. The answer names an operation;
        follow it with `client.operations`. `rate`: jobs per second."""
        more = {
            "rate": rate,
            "canary": None if canary is None else fields_of(canary),
            "dry_run": dry_run or None,
        }
        return Request(
            "POST",
            self._path("requeue"),
            reads(models.Matched),
            body=encode(_which(seqs, filter) | without_none(more)),
            repeat=Repeat.SAFE if dry_run else Repeat.IF_REFUSED,
        )

    @verb
    def operations(self) -> Request[models.Operations]:
        """The topic's operations: running ones first, newest first."""
        return Request("GET", self._path("operations"), reads(models.Operations))


def _which(seqs: int | Iterable[int] | None, chosen: Any) -> dict[str, Any]:
    """The body's fields that select jobs. Raises ValueError for both seqs and a filter, or neither."""
    if (seqs is None) == (chosen is None):
        raise ValueError("pass either seqs or a filter")
    return {"filter": fields_of(chosen)} if seqs is None else {"seqs": _listed(seqs)}


def _listed(seqs: int | Iterable[int] | None) -> list[int] | None:
    return [seqs] if isinstance(seqs, int) else None if seqs is None else list(seqs)
