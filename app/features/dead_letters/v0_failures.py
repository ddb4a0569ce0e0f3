"""GET /v0/topics/:topic/failures, and DELETE for one cluster of them."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import InvalidRequest
from app.features.dead_letters.failures import SILENCE, Failure
from app.features.dead_letters.reader import FailureReader
from app.features.dead_letters.requests import purge_cluster
from app.features.jobs.operation_requests import must_cover_letters
from app.http import direct
from app.http.bounds import CLUSTER_PATTERN, about
from app.http.context import context_of
from app.http.fields import encode, known_parameters, time_of, topic_in
from app.http.openapi import TOPIC, operation, path, query
from app.http.v0.bodies import Performance
from app.http.v0.fields import answer
from app.kernel.topics.policy import Policy, check_name

router = direct.router("topics")

MAX_CLUSTERS: Final = 100
_CLUSTER: Final = re.compile(CLUSTER_PATTERN.replace("$", r"\Z"))
_WHOLE: Final = re.compile(r"-?[0-9]{1,1000}\Z")

LIMIT: Final = query("limit", f"1 to {MAX_CLUSTERS} clusters, clamped.", {"type": "integer", "default": 20})
SINCE: Final = query(
    "since",
    "Only what went out from then on: an RFC 3339 time with its offset.",
    {"type": "string", "format": "date-time"},
)
CLUSTER: Final = path(
    "cluster",
    "The cluster, as the list of failures has it.",
    {"type": "string", "pattern": CLUSTER_PATTERN},
)


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
    """Jobs that are out, and whose errors are of one kind. `title` is what these have in common; `count` is exact
    unless at_least is true. Times are when its first and its last job went out, in ms since 1970."""

    cluster: Annotated[str, Meta(extra_json_schema={"pattern": CLUSTER_PATTERN})]
    title: str
    count: int
    at_least: bool
    deliveries: Deliveries
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
    limit, since = _parse_query(request)
    policy = await context.policies.queue(check_name(name))
    must_cover_letters(key, policy)
    found = await context.core(FailureReader).read(policy, since, limit)
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
    cluster = _parse_cluster(request)
    policy: Policy = await context.policies.queue(check_name(name))
    deleted = await purge_cluster(request, key, policy, cluster)
    return answer(encode({"topic": name, "cluster": cluster, "deleted": deleted})[1:-1], began)


def _parse_query(request: Request) -> tuple[int, datetime | None]:
    """How many clusters, and only of what went out since when. Raises InvalidRequest."""
    known_parameters(request, {"limit", "since"})
    given = request.query_params
    limit = given.get("limit", "20")
    if _WHOLE.match(limit) is None:
        raise InvalidRequest("limit must be a whole number.")
    since = given.get("since")
    return min(max(int(limit), 1), MAX_CLUSTERS), None if since is None else time_of(since, "since")


def _parse_cluster(request: Request) -> str:
    """The cluster that a request's path names. Raises InvalidRequest."""
    cluster: str = request.path_params["cluster"]
    if _CLUSTER.match(cluster) is None:
        raise InvalidRequest("A cluster's id has 16 hex digits, as the list of failures shows it.")
    return cluster


def _shown(one: Failure) -> FailureCluster:
    return FailureCluster(
        cluster=one.cluster,
        title=one.title or SILENCE,
        count=one.count,
        at_least=one.at_least,
        deliveries=Deliveries(one.fewest, round(one.mean, 2), one.most),
        first_seen=one.first_ms,
        last_seen=one.last_ms,
        example=FailedJob(one.topic, one.seq, one.error),
    )
