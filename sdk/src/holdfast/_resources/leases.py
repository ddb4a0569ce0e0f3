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
from holdfast._wire import Param, Repeat, Reply, Request, T, encode, path, reads, without_none
from holdfast.errors import InvalidResponse

_JOB: Final = {"$seq", "lease_id", "deliveries", "data"}


class Held(Protocol):
    """A lease to settle: a ClaimedJob, a Lease, or any object with these three fields."""

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
        """Claim up to `max` jobs in total from these topics (at most 32), in the given order. Each job has its `topic`;
        settle it there. `lease_ms` defaults to each topic's own. The other arguments are those of `topic(…).claim`."""
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
            body=encode(without_none(body)),
            repeat=Repeat.IF_REFUSED,
            wait_ms=wait_ms,
        )


class TopicLeases(NamedTopic[S]):
    """Calls for workers. All jobs of a call must have the same holder. A call can have up to 1,000."""

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
        """Claim up to `max` jobs (at most 1,000). Returns no jobs if none is ready.

        - wait_ms: how long to wait for the first job, at most 30,000.
        - lease_ms: length of the leases; default: the topic's.
        - tenants, tags: only jobs of these tenants, and with one of these tags.
        - node: the worker's name; default: the client's.
        - counts: False leaves out the number of ready jobs, which is faster.

        Retried only if no job can have been leased. Jobs in a lost answer become ready again when their leases end."""
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
            body=encode(without_none(body)),
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
        """Stream jobs, at most `max` in flight. Settle them with ack, nack or fail. When the stream is closed,
        unsettled jobs are returned at once."""
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
        """Complete jobs. `results`: one JSON value for each job, or None for no result. `counts`: False leaves out the
        numbers of ready and in-flight jobs, which is faster."""
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
        """Return jobs to the queue.

        - delay_ms: how long until they are ready; default: the topic's backoff.
        - errors: one for each job, or None.
        - refund: don't count the delivery, at most three times for a job.
        - counts: as in `ack`.
        """
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
        """Fail jobs, so that they are not retried. `errors`: one for each job, or None. `counts`: as in `ack`."""
        return self._settle("fail", jobs, models.Failed, counts, errors=_beside(jobs, errors, "errors"))

    @verb
    def extend(
        self, *jobs: Held, lease_ms: int, progress: Sequence[models.Progress | None] | None = None
    ) -> Request[models.Extended]:
        """Extend leases, to end `lease_ms` from now. `progress`: one for each job, or None."""
        reports = [None if one is None else {"percent": one.percent, "note": one.note} for one in progress or ()]
        body = holders(jobs) | {"lease_ms": lease_ms, "progress": _beside(jobs, reports or None, "progress")}
        return Request(
            "POST",
            self._path("extend"),
            reads(models.Extended),
            body=encode(without_none(body)),
        )

    def _settle(
        self, how: str, jobs: Sequence[Held], kind: Callable[..., T], counts: bool, **fields: Any
    ) -> Request[T]:
        def settled(reply: Reply) -> T:
            return read(kind, reply.body, repeated=reply.repeated)  # type: ignore[arg-type]

        body = encode(without_none(holders(jobs) | fields))
        return Request("POST", self._path(how), settled, params=_counts(counts), body=body)


def found(reply: Reply) -> tuple[list[dict[str, Any]], int | None]:
    """The jobs in a claim's answer, in claim order, and how many more are ready, None without counts. Raises
    InvalidResponse if required fields are missing."""
    match reply.body:
        case {"claimed": [*jobs], **rest} if all(isinstance(job, dict) and job.keys() >= _JOB for job in jobs):
            jobs.sort(key=lambda job: job.get("order", 0))
            match rest:
                case {"ready": int(ready)}:
                    return jobs, ready
                case _ if "ready" not in rest:
                    return jobs, None
    raise InvalidResponse(f"The answer is not a claim's: {reply.body!r:.200}")


def listed(names: Sequence[str] | None) -> list[str] | None:
    """Names as a list; None stays None."""
    return None if names is None else list(names)


def holders(jobs: Iterable[Held]) -> dict[str, Any]:
    """The body's fields that name jobs and their holder. Raises ValueError without jobs, or for several holders."""
    held = list(jobs)
    nodes = {job.node for job in held}
    if len(nodes) != 1:
        raise ValueError(f"all jobs of a call must have the same holder, not {sorted(nodes) or 'none'}")
    return {"node": nodes.pop(), "seqs": [job.seq for job in held], "lease_ids": [job.lease_id for job in held]}


def _counts(wanted: bool) -> dict[str, Param]:
    return {} if wanted else {"return_counts": False}


def _beside(jobs: Sequence[Held], values: Sequence[Any] | None, what: str) -> list[Any] | None:
    """One value for each job. Raises ValueError if their number is not that of the jobs."""
    if values is not None and len(values) != len(jobs):
        raise ValueError(f"{what} has {len(values)} values for {len(jobs)} jobs")
    return None if values is None else list(values)
