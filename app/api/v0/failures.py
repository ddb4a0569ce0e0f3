"""GET /v0/topics/:topic/failures, and DELETE for one cluster of them."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct
from app.api.bounds import about
from app.api.failures import (
    CLUSTER,
    LIMIT,
    SINCE,
    Cluster,
    asked_of,
    cluster_in,
    shared_fields,
)
from app.api.fields import encode, known_parameters, topic_in
from app.api.openapi import TOPIC, operation
from app.api.v0.bodies import Performance
from app.api.v0.fields import answer
from app.edge.context import context_of
from app.edge.dead_letters import purge_cluster
from app.edge.operations import must_cover_letters
from app.engine.failures import FailureReader
from app.keys import Scope
from app.queue.failures import Failure
from app.topics.config import Policy, check_name

router = direct.router("topics")


class FailedJob(msgspec.Struct):
    """The newest job of a cluster: where it is, and its error."""

    topic: str
    seq: int
    error: str | None


class FailureCluster(Cluster, kw_only=True):
    """A cluster. Times are when its first and its last job went out, in ms since 1970."""

    first_seen: int
    last_seen: int
    example: FailedJob


class FailuresAnswer(msgspec.Struct):
    """Clusters, the largest first. more: there may be others."""

    topic: str
    failures: list[FailureCluster]
    more: bool
    performance: Performance


class ClusterDeletedAnswer(msgspec.Struct):
    """How many jobs were deleted."""

    topic: str
    cluster: str
    deleted: Annotated[int, about("Those that were out by then, whoever held them.")]
    performance: Performance


@router.get(
    "/v0/topics/{topic}/failures",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, LIMIT, SINCE],
        answers={200: FailuresAnswer},
        errors=[400, 401, 403, 404, 409, 503],
    ),
)
async def failures(request: Request) -> Response:
    """What a queue's jobs have failed with that are out, by the kind of the error: those that failed in place, its dead
    letters, and those that are in it as a dead-letter topic."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    key = context.access.check(request, Scope.READ, name)
    asked = asked_of(request)
    policy = await context.policies.queue(check_name(name))
    must_cover_letters(key, policy)
    found = await context.core(FailureReader).read(policy, asked.since, asked.limit)
    fields = {"topic": name, "failures": [_shown(one) for one in found.clusters], "more": found.more}
    return answer(encode(fields)[1:-1], began)


@router.delete(
    "/v0/topics/{topic}/failures/{cluster}",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, CLUSTER],
        answers={200: ClusterDeletedAnswer},
        errors=[400, 401, 403, 404, 409, 503],
    ),
)
async def delete(request: Request) -> Response:
    """Delete the jobs of a cluster that are out by now, for good, those that somebody holds too."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    key = context.access.check(request, Scope.DELETE, name)
    known_parameters(request, ())
    cluster = cluster_in(request)
    policy: Policy = await context.policies.queue(check_name(name))
    deleted = await purge_cluster(request, key, policy, cluster)
    return answer(encode({"topic": name, "cluster": cluster, "deleted": deleted})[1:-1], began)


def _shown(one: Failure) -> FailureCluster:
    return FailureCluster(
        **shared_fields(one),  # type: ignore[arg-type]
        first_seen=one.first_ms,
        last_seen=one.last_ms,
        example=FailedJob(one.topic, one.seq, one.error),
    )
