"""Jobs that one does not hold: to look at, change, cancel and requeue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal

from holdfast import models
from holdfast._body import data_of, fields_of, moment_of
from holdfast._resources.settings import NamedTopic
from holdfast._verbs import S, listing, verb
from holdfast._wire import Repeat, Request, encode, reads, reads_page, said


class Unchanged(Enum):
    """What a change leaves as it is."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED


class TopicJobs(NamedTopic[S]):
    """What people do about jobs. Seqs name them."""

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
        """Those that are there, the newest first unless `order` says otherwise; `limit` of them a page (1,000). `node`:
        who holds them; `error`: a part of the last one; `data`: what payloads have, each path=value."""
        params = {
            **{"state": state, "tenant": tenant, "tag": tag, "key": key, "group": group, "priority": priority},
            **{"node": node, "error": error, "data": list(data) or None},
            **{"older_than_ms": older_than_ms, "order": order, "limit": limit, "cursor": cursor},
        }
        return Request("GET", self._path("jobs"), reads_page(models.Job, "jobs", topic=self.name), params=params)

    @verb
    def job(self, seq: int) -> Request[models.Job]:
        """One of them; NotFound once it is gone."""
        return Request("GET", self._path("jobs", seq), reads(models.Job))

    @verb
    def history(self, seq: int, *, limit: int | None = None) -> Request[models.History]:
        """What has happened to it."""
        return Request(
            "GET",
            self._path("jobs", seq, "history"),
            reads(models.History),
            params={"limit": limit},
        )

    @verb
    def result(self, seq: int, *, wait_ms: int = 0) -> Request[models.Outcome]:
        """What came of it; with `wait_ms` (60,000 at most), wait so long for its end."""
        return Request(
            "GET",
            self._path("jobs", seq, "result"),
            reads(models.Outcome),
            params={"wait_ms": wait_ms or None},
            wait_ms=wait_ms,
        )

    @verb
    def explain_job(self, seq: int) -> Request[models.JobExplanation]:
        """Why it is not running."""
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
        """Change one that waits, else NotPending. What is not given stays; None takes `meta` and `tag` away."""
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
        """Cancel jobs, by a seq, up to 1,000 seqs or a filter. Jobs that wait are gone, jobs that are leased are
        marked."""
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
        """Cancel however many jobs a filter matches: the answer names an operation, which `client.operations` follows,
        and which goes on whoever leaves. `rate`: jobs a second."""
        more = {"rate": rate, "dry_run": dry_run or None}
        return Request(
            "POST",
            self._path("operations"),
            reads(models.Matched),
            body=encode({"kind": "cancel", "filter": fields_of(filter)} | said(more)),
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
        """Take leases back, so that the jobs are claimable at once and late acks change nothing: of a seq, up to 1,000
        seqs, a group's job, or of all jobs that `node` holds. Beside seqs or a group, `node` means: only if it holds
        them. `visible_at`, one for each seq, means: only if its lease still ends when `jobs` said. With `refund`, the
        deliveries are given back."""
        until = None if visible_at is None else [round(at.timestamp() * 1000) for at in visible_at]
        which = {"seqs": _listed(seqs), "group": group, "tenant": tenant, "node": node, "visible_at": until}
        body = encode(said(which | {"refund": refund or None}))
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
        """Bring dead letters and failed jobs back, by up to 1,000 seqs or by filter: the answer names an operation,
        which `client.operations` follows. `rate`: jobs a second."""
        more = {
            "rate": rate,
            "canary": None if canary is None else fields_of(canary),
            "dry_run": dry_run or None,
        }
        return Request(
            "POST",
            self._path("requeue"),
            reads(models.Matched),
            body=encode(_which(seqs, filter) | said(more)),
            repeat=Repeat.SAFE if dry_run else Repeat.IF_REFUSED,
        )

    @verb
    def operations(self) -> Request[models.Operations]:
        """Its requeues and cancels of many, those under way before others, the newest first."""
        return Request("GET", self._path("operations"), reads(models.Operations))


def _which(seqs: int | Iterable[int] | None, chosen: Any) -> dict[str, Any]:
    """Jobs by a seq, by seqs or by filter. Raises ValueError for both, or neither."""
    if (seqs is None) == (chosen is None):
        raise ValueError("jobs are named by seqs or by a filter: give one of the two")
    return {"filter": fields_of(chosen)} if seqs is None else {"seqs": _listed(seqs)}


def _listed(seqs: int | Iterable[int] | None) -> list[int] | None:
    return [seqs] if isinstance(seqs, int) else None if seqs is None else list(seqs)
