"""Routes of v0: what a topic's jobs failed with, requeues of many failed jobs, and how far these are."""

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

COUNTS: Final = dict.fromkeys((200, 202), RequeueAnswer)  # what a requeue answers, by status
ID: Final = {**path("id", "The operation's id.", {"type": "string"}), "example": "4d0e9d5b-3c1f-4f7a-9a57-2f9f7a1f8f00"}
LIMIT: Final = query("limit", f"1 to {MAX_CLUSTERS} clusters, clamped.", {"type": "integer", "default": 20})
SINCE: Final = query(
    "since",
    "Only jobs that failed for good from then on: an RFC 3339 time with its offset.",
    {"type": "string", "format": "date-time"},
)
CLUSTER: Final = path(
    "cluster",
    "The cluster's id, as the list of failures has it.",
    {"type": "string", "pattern": CLUSTER_PATTERN},
)


class OperationSoFar(msgspec.Struct):
    """A requeue or cancel of many jobs, so far. Times are in ms since 1970. `skipped`: jobs that another call changed
    meanwhile, whose key a pending job has, or whose topic is gone. `failed_again`: of the canary's jobs. Of a cancel:
    `gone` and `marked`, as POST …/cancel counts them."""

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
    """A requeue or cancel of many jobs, so far."""


class OperationsAnswer(msgspec.Struct):
    """A topic's requeues and cancels: those under way first, then the newest first."""

    topic: str
    operations: Annotated[list[OperationSoFar], about(f"{MAX_OPERATIONS} at most.")]


class Deliveries(msgspec.Struct):
    """How many deliveries the jobs of a cluster had."""

    min: int
    avg: float
    max: int


class FailedJob(msgspec.Struct):
    """The newest job of a cluster: where it is, and its error."""

    topic: str
    seq: int
    error: str | None


class FailureCluster(msgspec.Struct, kw_only=True):
    """Failed jobs and dead letters whose errors are of one kind. `title` is what the errors have in common; `count` is
    exact unless at_least is true. Times are those of the first and the last failure, in ms since 1970."""

    cluster: Annotated[str, Meta(extra_json_schema={"pattern": CLUSTER_PATTERN})]
    title: str
    count: int
    at_least: bool
    deliveries: Deliveries
    first_seen: int
    last_seen: int
    example: FailedJob


class FailuresAnswer(msgspec.Struct):
    """Clusters, the largest first. `more`: there may be others."""

    topic: str
    failures: list[FailureCluster]
    more: bool


class ClusterDeletedAnswer(msgspec.Struct):
    """How many jobs were deleted."""

    topic: str
    cluster: str
    deleted: Annotated[int, about("Jobs that were in the cluster by then, leased ones too.")]


async def requeue(call: Call, body: RequeueBody) -> tuple[int, OperationCount]:
    """Requeue failed jobs and dead letters, with all their deliveries ahead of them: those of this topic, or those that
    it holds for other topics. An operation does the work; it goes on without its caller."""
    return await requeues.begin(call, body)


async def of_topic(call: Call) -> OperationsAnswer:
    """A topic's requeues and cancels: those under way, and the last ones that ended. Of the latter, the newest 1,000 of
    all topics are searched."""
    await call.queue()
    found = await call.context.core(Redrives).of_topic(call.topic, MAX_OPERATIONS)
    return OperationsAnswer(call.topic, [OperationSoFar(**_fields(one)) for one in found])


async def read(call: Call) -> OperationAnswer:
    """How far a requeue or cancel is. Operations are kept for 14 days after their end."""
    return OperationAnswer(**_fields(await _operation(call)))


async def cancel(call: Call) -> OperationAnswer:
    """Stop a requeue or cancel after the batch that it is at. Jobs that it has changed stay changed."""
    found = await _operation(call)
    ending = await call.context.core(Redrives).cancel(found.id, call.context.access.actor(call.request))
    return OperationAnswer(**_fields(ending or found))


async def failures(call: Call) -> FailuresAnswer:
    """What a queue's jobs have failed with, by the kind of the error: jobs that failed in place, the queue's dead
    letters, and dead letters that it holds for other topics."""
    limit, since = _parse_query(call.request)
    policy = await call.queue()
    must_cover_letters(call.key, policy)
    found = await call.context.core(FailureReader).read(policy, since, limit)
    return FailuresAnswer(call.topic, [_cluster(one) for one in found.clusters], found.more)


async def delete(call: Call) -> ClusterDeletedAnswer:
    """Delete the jobs that are in a cluster by now for good, leased ones too."""
    cluster: str = call.request.path_params["cluster"]
    if _CLUSTER.match(cluster) is None:
        raise InvalidRequest("A cluster's id has 16 hex digits, as the list of failures shows it.")
    policy = await call.queue()
    must_cover_letters(call.key, policy)
    deleted = await call.context.core(FailureReader).purge(policy, cluster, call.context.access.actor(call.request))
    return ClusterDeletedAnswer(call.topic, cluster, deleted)


async def _operation(call: Call) -> Operation:
    """The operation that the path names. Raises NotFound."""
    return await find_operation(call.context, call.request.path_params["id"], call.key)


def _parse_query(request: Request) -> tuple[int, datetime | None]:
    """How many clusters, and since when their jobs must have failed. Raises InvalidRequest."""
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
