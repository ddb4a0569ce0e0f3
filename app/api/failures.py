"""What the failures of a topic are asked with and answered by, in both dialects. docs/failures.md."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request

from app.api.fields import known_parameters, time_of
from app.api.openapi import path, query
from app.errors import InvalidRequest
from app.queue.failures import SILENCE, Failure

MAX_CLUSTERS: Final = 100
CLUSTER_PATTERN: Final = "^[0-9a-f]{16}$"
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
ClusterId = Annotated[
    str, Meta(pattern=CLUSTER_PATTERN, description="A cluster of failures, whatever its jobs' states are.")
]


class Deliveries(msgspec.Struct):
    """How many deliveries the jobs of a cluster had."""

    min: int
    avg: float
    max: int


class Cluster(msgspec.Struct, kw_only=True):
    """Jobs that are out, and whose errors are of one kind. `title` is what these have in common; `count` is exact
    unless at_least is true."""

    cluster: Annotated[str, Meta(extra_json_schema={"pattern": CLUSTER_PATTERN})]
    title: str
    count: int
    at_least: bool
    deliveries: Deliveries


class Asked(msgspec.Struct, frozen=True):
    """How many clusters, and only of what went out since when."""

    limit: int
    since: datetime | None


def asked_of(request: Request) -> Asked:
    """What the query asks for. Raises InvalidRequest."""
    known_parameters(request, {"limit", "since"})
    given = request.query_params
    limit = given.get("limit", "20")
    if _WHOLE.match(limit) is None:
        raise InvalidRequest("limit must be a whole number.")
    since = given.get("since")
    return Asked(min(max(int(limit), 1), MAX_CLUSTERS), None if since is None else time_of(since, "since"))


def cluster_in(request: Request) -> str:
    """The cluster that a request's path names. Raises InvalidRequest."""
    cluster: str = request.path_params["cluster"]
    if _CLUSTER.match(cluster) is None:
        raise InvalidRequest("A cluster's id has 16 hex digits, as the list of failures shows it.")
    return cluster


def shared_fields(one: Failure) -> dict[str, object]:
    """What both dialects show of a cluster."""
    return {
        "cluster": one.cluster,
        "title": one.title or SILENCE,
        "count": one.count,
        "at_least": one.at_least,
        "deliveries": Deliveries(one.fewest, round(one.mean, 2), one.most),
    }
