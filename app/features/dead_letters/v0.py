"""Routes of v0: a topic's failures, requeues of many failed jobs, and their progress."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request

from app.base.times import ms_of, ms_or_none
from app.errors import InvalidRequest
from app.features.dead_letters import requeues
from app.features.dead_letters.failures import Failure, FailureReader
from app.features.dead_letters.requeues import RequeueAnswer, RequeueBody
from app.features.jobs.operations import Operation
from app.features.jobs.redrives import Redrives
from app.features.jobs.requests import OperationCount, find_operation, must_cover_letters
from app.http.bounds import CLUSTER_PATTERN, about
from app.http.fields import time_of
from app.http.openapi import path, query
from app.http.route import Call

MAX_CLUSTERS: Final = 100
MAX_OPERATIONS: Final = 20  # of a topic
_CLUSTER: Final = re.compile(CLUSTER_PATTERN.replace("$", r"\Z"))
_WHOLE: Final = re.compile(r"-?[0-9]{1,1000}\Z")

COUNTS: Final = dict.fromkeys((200, 202), RequeueAnswer)  # a requeue's answers by HTTP status
ID: Final = {**path("id", "The operation's id.", {"type": "string"}), "example": "4d0e9d5b-3c1f-4f7a-9a57-2f9f7a1f8f00"}
LIMIT: Final = query("limit", f"1 to {MAX_CLUSTERS} clusters, clamped.", {"type": "integer", "default": 20})
SINCE: Final = query(
    "since",
    "Only jobs that failed for good at or after this RFC 3339 time with its offset.",
    {"type": "string", "format": "date-time"},
)
CLUSTER: Final = path(
    "cluster", "The cluster's id from the list of failures.", {"type": "string", "pattern": CLUSTER_PATTERN}
)


class OperationSoFar(msgspec.Struct):
    """The progress of a requeue or cancel of many jobs. Times are in ms since 1970. skipped: jobs that another call
    changed meanwhile, whose key a pending job has, or whose topic is gone. failed_again: jobs of the canary that failed
    again. gone and marked: waiting jobs removed and leased jobs marked by a cancel."""

    id: str
    topic: str
    kind: Literal["requeue", "cancel"]
    state: Literal["canary", "running", "done", "cancelled", "stopped", "failed"]
    reason: str | None
    matched: int
    exact: bool
    requeued: int
    gone: int
    marked: int
    skipped: int
    failed_again: int
    rate: int
    cancelled: bool
    started_at: int
    ended_at: int | None
    requested_by: str


class OperationAnswer(OperationSoFar):
    """The progress of a requeue or cancel of many jobs."""


class OperationsAnswer(msgspec.Struct):
    """A topic's requeues and cancels, running ones first, then newest first."""

    topic: str
    operations: Annotated[list[OperationSoFar], about(f"At most {MAX_OPERATIONS}.")]


class Deliveries(msgspec.Struct):
    """How many deliveries the jobs of a cluster had."""

    min: int
    avg: float
    max: int


class FailedJob(msgspec.Struct):
    """The newest job of a cluster."""

    topic: str
    seq: int
    error: str | None


class FailureCluster(msgspec.Struct, kw_only=True):
    """Failed jobs and dead letters with the same kind of error. title: what the errors have in common. count: exact
    unless at_least is true. first_seen, last_seen: the first and last failure, in ms since 1970."""

    cluster: Annotated[str, Meta(extra_json_schema={"pattern": CLUSTER_PATTERN})]
    title: str
    count: int
    at_least: bool
    deliveries: Deliveries
    first_seen: int
    last_seen: int
    example: FailedJob


class FailuresAnswer(msgspec.Struct):
    """Clusters, largest first. more: there may be others."""

    topic: str
    failures: list[FailureCluster]
    more: bool


class ClusterDeletedAnswer(msgspec.Struct):
    """How many jobs were deleted."""

    topic: str
    cluster: str
    deleted: Annotated[int, about("Jobs of the cluster, including leased ones.")]


async def requeue(call: Call, body: RequeueBody) -> tuple[int, OperationCount]:
    """Start to requeue a topic's failed jobs and dead letters, and the dead letters of other topics in it. They get all
    their deliveries again. The requeue runs in the background."""
    return await requeues.begin(call, body)


async def of_topic(call: Call) -> OperationsAnswer:
    """List a topic's requeues and cancels: the running ones, and those among the 1,000 of all topics that ended
    last."""
    await call.queue()
    found = await call.context.core(Redrives).of_topic(call.topic, MAX_OPERATIONS)
    return OperationsAnswer(call.topic, [OperationSoFar(**_fields(one)) for one in found])


async def read(call: Call) -> OperationAnswer:
    """Get the progress of a requeue or cancel. Operations are kept for 14 days after their end."""
    return OperationAnswer(**_fields(await _operation(call)))


async def cancel(call: Call) -> OperationAnswer:
    """Stop a requeue or cancel after its current batch. Jobs that it has changed stay changed."""
    found = await _operation(call)
    ending = await call.context.core(Redrives).cancel(found.id, call.context.access.actor(call.request))
    return OperationAnswer(**_fields(ending or found))


async def failures(call: Call) -> FailuresAnswer:
    """List a queue's failures by kind of error: jobs that failed in place, the queue's dead letters, and dead letters
    that it holds for other topics."""
    limit, since = _parse_query(call.request)
    policy = await call.queue()
    must_cover_letters(call.key, policy)
    found = await call.context.core(FailureReader).read(policy, since, limit)
    return FailuresAnswer(call.topic, [_cluster(one) for one in found.clusters], found.more)


async def delete(call: Call) -> ClusterDeletedAnswer:
    """Delete the jobs that are in a cluster now, including leased ones."""
    cluster: str = call.request.path_params["cluster"]
    if _CLUSTER.match(cluster) is None:
        raise InvalidRequest("cluster must be a cluster's id from the list of failures, 16 hex digits.")
    policy = await call.queue()
    must_cover_letters(call.key, policy)
    deleted = await call.context.core(FailureReader).purge(policy, cluster, call.context.access.actor(call.request))
    return ClusterDeletedAnswer(call.topic, cluster, deleted)


async def _operation(call: Call) -> Operation:
    return await find_operation(call.context, call.request.path_params["id"], call.key)


def _parse_query(request: Request) -> tuple[int, datetime | None]:
    """The parameters limit and since. Raises InvalidRequest."""
    given = request.query_params
    limit = given.get("limit", "20")
    if _WHOLE.match(limit) is None:
        raise InvalidRequest("limit must be a whole number.")
    since = given.get("since")
    return min(max(int(limit), 1), MAX_CLUSTERS), None if since is None else time_of(since, "since")


def _cluster(one: Failure) -> FailureCluster:
    return FailureCluster(
        cluster=one.cluster,
        title=one.title,
        count=one.count,
        at_least=one.at_least,
        deliveries=Deliveries(one.fewest, round(one.mean, 2), one.most),
        first_seen=one.first_ms,
        last_seen=one.last_ms,
        example=FailedJob(one.topic, one.seq, one.error),
    )


def _fields(one: Operation) -> dict[str, Any]:
    return {
        "id": str(one.id),
        "topic": one.wanted.topic[0],
        "kind": one.wanted.kind,
        "state": one.state.value,
        "reason": one.reason,
        "matched": one.matched.count,
        "exact": one.matched.exact,
        "requeued": one.requeued,
        "gone": one.gone,
        "marked": one.marked,
        "skipped": one.skipped,
        "failed_again": one.failed_again,
        "rate": one.wanted.rate,
        "cancelled": one.cancelled,
        "started_at": ms_of(one.started_at),
        "ended_at": ms_or_none(one.ended_at),
        "requested_by": one.actor[0],
    }
