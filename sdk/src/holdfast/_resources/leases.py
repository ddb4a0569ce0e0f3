"""Claiming jobs and settling them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from holdfast import models
from holdfast._decode import read
from holdfast._resources.settings import NamedTopic
from holdfast._sse import Frame
from holdfast._streams import Stream
from holdfast._verbs import Resource, S, stream, verb
from holdfast._wire import Param, Repeat, Reply, Request, T, encode, path, reads, said
from holdfast.errors import InvalidResponse

_JOB: Final = {"$seq", "lease_id", "deliveries", "data"}


class Held(Protocol):
    """What is settled: a ClaimedJob, a Lease, or what has these three."""

    @property
    def seq(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def lease_id(self) -> str: ...


class LeasesOfTopics(Resource[S]):
    """Claims from several topics."""

    @verb
    def claim(
        self,
        *topics: str,
        max: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        tenants: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        node: str | None = None,
        counts: bool = True,
    ) -> Request[models.Claimed]:
        """Lease up to `max` jobs in all from these topics (32 at most), in the order given. Each job has its `topic`,
        whose `ack` settles it. The rest is as in `topic(…).claim`. Without `lease_ms`, each topic's own counts."""
        node = node or self._sender.account.node
        body: dict[str, Any] = {"topics": topics, "node": node, "max": max, "wait_ms": wait_ms or None}
        body |= {"lease_ms": lease_ms, "tenants": listed(tenants), "tags": listed(tags)}

        def claimed(reply: Reply) -> models.Claimed:
            bodies, ready = found(reply)
            return models.Claimed(tuple(read(models.ClaimedJob, body, node=node) for body in bodies), ready)

        return Request(
            "POST",
            path("claim"),
            claimed,
            params=_counts(counts),
            body=encode(said(body)),
            repeat=Repeat.IF_REFUSED,
            wait_ms=wait_ms,
        )


class TopicLeases(NamedTopic[S]):
    """What workers do. Jobs of one call have one holder; a call has up to 1,000."""

    @verb
    def claim(
        self,
        *,
        max: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        tenants: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        node: str | None = None,
        counts: bool = True,
    ) -> Request[models.Claimed]:
        """Lease up to `max` jobs (1,000); with `wait_ms` (30,000 at most), wait so long for the first. With `tags`,
        only jobs with one of these. An empty answer is none of jobs, never an error. `node` is who claims, the client's
        if absent. Without `counts` the answer does not say how many are ready, and comes sooner.

        It is tried again only where nothing can have been leased: what a lost answer held comes back when its leases
        end."""
        node = node or self._sender.account.node
        body: dict[str, Any] = {"node": node, "max": max, "wait_ms": wait_ms or None, "lease_ms": lease_ms}
        body |= {"tenants": listed(tenants), "tags": listed(tags)}

        def claimed(reply: Reply) -> models.Claimed:
            bodies, ready = found(reply)
            jobs = [read(models.ClaimedJob, body, topic=self.name, node=node) for body in bodies]
            return models.Claimed(tuple(jobs), ready)

        return Request(
            "POST",
            self._path("claim"),
            claimed,
            params=_counts(counts),
            body=encode(said(body)),
            repeat=Repeat.IF_REFUSED,
            wait_ms=wait_ms,
        )

    @stream
    def work(
        self,
        *,
        max: int = 1,
        lease_ms: int | None = None,
        tenants: Sequence[str] | None = None,
        node: str | None = None,
    ) -> Stream[models.ClaimedJob]:
        """Jobs as they come, `max` in flight at most; settle them by their own calls. When the stream is closed, what
        came on it and was not settled goes back at once."""
        node = node or self._sender.account.node
        of_tenants = None if tenants is None else list(tenants)
        params: dict[str, Param] = {"node": node, "max": max, "lease_ms": lease_ms, "tenants": of_tenants}
        request = Request(
            "GET", self._path("work"), lambda _: None, params=params, headers={"accept": "text/event-stream"}
        )

        def job(frame: Frame, body: Any) -> models.ClaimedJob | None:
            return read(models.ClaimedJob, body, node=node) if frame.event == "job" else None

        return Stream(request, job)

    @verb
    def ack(self, *jobs: Held, results: Sequence[Any] | None = None, counts: bool = True) -> Request[models.Acked]:
        """They are done. `results` beside them, any JSON, None for none. Without `counts` the answer does not say how
        many are ready and in flight, and comes sooner."""
        return self._settle("ack", jobs, models.Acked, counts, results=_beside(jobs, results, "results"))

    @verb
    def nack(
        self,
        *jobs: Held,
        delay_ms: int | None = None,
        errors: Sequence[str | None] | None = None,
        refund: bool = False,
        counts: bool = True,
    ) -> Request[models.Nacked]:
        """Return them, hidden for `delay_ms`, as the topic's backoff says if absent. `errors` beside them, why; with
        `refund` the delivery does not count, three times a job. `counts` as of ack."""
        return self._settle(
            "nack",
            jobs,
            models.Nacked,
            counts,
            delay_ms=delay_ms,
            errors=_beside(jobs, errors, "errors"),
            refund=refund or None,
        )

    @verb
    def fail(
        self, *jobs: Held, errors: Sequence[str | None] | None = None, counts: bool = True
    ) -> Request[models.Failed]:
        """Take them out: they are not to be tried again. `errors` beside them, why. `counts` as of ack."""
        return self._settle("fail", jobs, models.Failed, counts, errors=_beside(jobs, errors, "errors"))

    @verb
    def extend(
        self, *jobs: Held, lease_ms: int, progress: Sequence[models.Progress | None] | None = None
    ) -> Request[models.Extended]:
        """Their leases end `lease_ms` from now. `progress` beside them, how far they are."""
        told = [None if one is None else {"percent": one.percent, "note": one.note} for one in progress or ()]
        body = holders(jobs) | {"lease_ms": lease_ms, "progress": _beside(jobs, told or None, "progress")}
        return Request(
            "POST",
            self._path("extend"),
            reads(models.Extended),
            body=encode(said(body)),
        )

    def _settle(
        self, how: str, jobs: Sequence[Held], kind: Callable[..., T], counts: bool, **fields: Any
    ) -> Request[T]:
        def settled(reply: Reply) -> T:
            return read(kind, reply.body, repeated=reply.repeated)  # type: ignore[arg-type]

        body = encode(said(holders(jobs) | fields))
        return Request("POST", self._path(how), settled, params=_counts(counts), body=body)


def found(reply: Reply) -> tuple[list[dict[str, Any]], int | None]:
    """The jobs that a claim found, each as the answer has it, in claim order, and how many more are ready, None if that
    was not asked. Raises InvalidResponse if it lacks what a worker goes by."""
    match reply.body:
        case {"claimed": [*jobs], **rest} if all(isinstance(job, dict) and job.keys() >= _JOB for job in jobs):
            jobs.sort(key=lambda job: job.get("order", 0))
            match rest:
                case {"ready": int(ready)}:
                    return jobs, ready
                case _ if "ready" not in rest:
                    return jobs, None
    raise InvalidResponse(f"The answer is none to a claim: {reply.body!r:.200}")


def listed(names: Sequence[str] | None) -> list[str] | None:
    """Names as a body has them; None: they are left out."""
    return None if names is None else list(names)


def holders(jobs: Iterable[Held]) -> dict[str, Any]:
    """The fields that say which jobs are meant, and whose. Raises ValueError for jobs of several holders, or none."""
    held = list(jobs)
    nodes = {job.node for job in held}
    if len(nodes) != 1:
        raise ValueError(f"the jobs of a call have one holder, and these have {sorted(nodes) or 'none'}")
    return {"node": nodes.pop(), "seqs": [job.seq for job in held], "lease_ids": [job.lease_id for job in held]}


def _counts(wanted: bool) -> dict[str, Param]:
    return {} if wanted else {"return_counts": False}


def _beside(jobs: Sequence[Held], values: Sequence[Any] | None, what: str) -> list[Any] | None:
    """What is said of each job. Raises ValueError where it is not one each: zip would leave some out."""
    if values is not None and len(values) != len(jobs):
        raise ValueError(f"{what} has {len(values)} for {len(jobs)} jobs")
    return None if values is None else list(values)
