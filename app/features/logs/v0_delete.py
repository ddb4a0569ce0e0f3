"""POST /v0/topics/:topic/delete: records of a log, or waiting jobs of a queue."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import InvalidRequest
from app.features.topics.v0 import extent_of
from app.http import direct
from app.http.body import read_json
from app.http.context import context_of
from app.http.fields import check_text, encode, topic_in
from app.http.openapi import TOPIC, operation
from app.http.v0.bodies import DeleteBody, RecordsDeletedAnswer
from app.http.v0.fields import answer
from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.logs.log import Match
from app.kernel.model import MAX_TAG_BYTES
from app.kernel.topics.config import Policy, check_name
from app.kernel.topics.settings import TopicType

router = direct.router("records")

_body = msgspec.json.Decoder(DeleteBody)


@router.post(
    "/v0/topics/{topic}/delete",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=DeleteBody,
        answers={200: RecordsDeletedAnswer},
        errors=[400, 401, 403, 404, 413, 415, 503],
    ),
)
async def delete(request: Request) -> Response:
    """Delete what there is at this moment below a seq, or with a tag: for good, and without a trace for readers. In a
    queue, jobs that are leased are marked as cancelled."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.DELETE, name)
    body = await read_json(request, _body, context.settings.max_body_bytes)
    check_name(name)
    if body.before_seq is None and body.match is None:
        raise InvalidRequest("before_seq or match is needed: what is to be deleted?")
    match = match_of(body.match)
    logs, by = context.engine.logs, context.access.actor(request)

    async def deleted(policy: Policy) -> dict[str, Any]:
        # Ahead of it: what breaks off has done a part.
        asked = {"before_seq": body.before_seq, "match": body.match}
        await trail.record(context.pools.rest, by, Action.RECORDS_DELETED, name, asked)
        if policy.config.type is TopicType.LOG:
            done = {"deleted": await logs.delete(policy, body.before_seq, match)}
        else:
            count, marked = await logs.delete_jobs(policy, body.before_seq, match)
            done = {"deleted": count, "marked": marked}
        extent, _ = await extent_of(context, policy)
        return {"topic": name, **done, **extent}

    return answer(encode(await context.policies.confirmed(name, deleted))[1:-1], began)


def match_of(given: str | list[str] | None) -> Match:
    """Which tags are meant. Raises InvalidRequest."""
    if given is None:
        return Match()
    if isinstance(given, str):
        given = ["tag", "Glob" if given.endswith("*") else "Eq", given]
    match given:
        case ["tag", "Eq", tag]:
            return Match(tag=check_text(tag, "match", MAX_TAG_BYTES))
        case ["tag", "Glob", pattern] if pattern.endswith("*") and "*" not in pattern[:-1]:
            return Match(prefix=check_text(pattern[:-1], "match", MAX_TAG_BYTES))
    raise InvalidRequest(
        'match must be ["tag", "Eq", "x"], ["tag", "Glob", "x*"] with its only star at the end, or a text.'
    )
