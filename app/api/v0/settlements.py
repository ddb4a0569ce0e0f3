"""POST /v0/topics/:topic/ack, /nack and /extend: what holders do with their leases."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct, tenancy
from app.api.body import read_json
from app.api.bounds import DAY_MS, MAX_ERROR_BYTES
from app.api.fields import check_text, encode, topic_in
from app.api.openapi import TOPIC, operation
from app.api.v0.bodies import AckAnswer, AckBody, ExtendAnswer, ExtendBody, NackAnswer, NackBody
from app.api.v0.fields import answer, fsync_since, held_by, leases_of
from app.edge.context import Context, context_of
from app.errors import InvalidRequest
from app.keys import Key, Scope
from app.queue.consumer import Return
from app.topics.config import Policy, check_name, clamp_lease

router = direct.router("jobs")

_ack_body = msgspec.json.Decoder(AckBody)
_nack_body = msgspec.json.Decoder(NackBody)
_extend_body = msgspec.json.Decoder(ExtendBody)


def _operation(body: type[msgspec.Struct], done: type[msgspec.Struct]) -> dict[str, Any]:
    errors = [400, 401, 403, 404, 409, 413, 415, 503]
    return operation(parameters=[TOPIC], body=body, answers={200: done}, errors=errors)


@router.post("/v0/topics/{topic}/ack", response_class=Response, openapi_extra=_operation(AckBody, AckAnswer))
async def ack(request: Request) -> Response:
    """Complete jobs: the ack is the delete. Safe to repeat."""
    began = time.perf_counter()
    context, name, key = _open(request)
    body = await read_json(request, _ack_body, context.settings.max_body_bytes)
    check_name(name)
    held = held_by(body.node, body.seqs, leases_of(body.lease_ids))
    policy = await context.policies.queue(name)
    sent = time.perf_counter()
    own = await tenancy.own(context, key, policy.topic, body.seqs)
    if own is None:
        done = await context.engine.settlements.ack(policy, held)
    else:
        done = {own[i] for i in await context.engine.settlements.ack(policy, [held[i] for i in own])}
    timings = fsync_since(sent) if policy.config.durable else b""
    counts = await tenancy.counts(context, key, policy)
    return answer(_settled(counts, policy, b"acked", body.seqs, done), began, timings)


@router.post("/v0/topics/{topic}/nack", response_class=Response, openapi_extra=_operation(NackBody, NackAnswer))
async def nack(request: Request) -> Response:
    """Return jobs to the queue, at once or after `delay_ms`; a job that has had its last delivery goes out instead."""
    began = time.perf_counter()
    context, name, key = _open(request)
    body = await read_json(request, _nack_body, context.settings.max_body_bytes)
    check_name(name)
    held = held_by(body.node, body.seqs, leases_of(body.lease_ids))
    returns = _returns(body)
    policy = await context.policies.queue(name)
    own = await tenancy.own(context, key, policy.topic, body.seqs)
    if own is None:
        done = await context.engine.settlements.nack(policy, held, returns)
    else:
        mine, back = [held[i] for i in own], [returns[i] for i in own]
        done = {own[i] for i in await context.engine.settlements.nack(policy, mine, back)}
    return answer(_settled(await tenancy.counts(context, key, policy), policy, b"nacked", body.seqs, done), began)


@router.post("/v0/topics/{topic}/extend", response_class=Response, openapi_extra=_operation(ExtendBody, ExtendAnswer))
async def extend(request: Request) -> Response:
    """Set leases to end `lease_ms` from now: the heartbeat of a long job."""
    began = time.perf_counter()
    context, name, key = _open(request)
    body = await read_json(request, _extend_body, context.settings.max_body_bytes)
    check_name(name)
    held = held_by(body.node, body.seqs, leases_of(body.lease_ids))
    policy = await context.policies.queue(name)
    lease_ms, own = clamp_lease(body.lease_ms), await tenancy.own(context, key, policy.topic, body.seqs)
    if own is None:
        done = await context.engine.settlements.extend(policy, held, lease_ms)
    else:
        extended = await context.engine.settlements.extend(policy, [held[i] for i in own], lease_ms)
        done = {own[i]: deadline for i, deadline in extended.items()}
    fields = b'"topic":"%b","extended":%d,"skipped":%b,"deadlines":%b' % (
        name.encode(),
        len(done),
        encode([seq for i, seq in enumerate(body.seqs) if i not in done]),
        encode({str(body.seqs[i]): deadline for i, deadline in done.items()}),
    )
    return answer(fields, began)


def _open(request: Request) -> tuple[Context, str, Key | None]:
    context = context_of(request)
    name = topic_in(request)
    return context, name, context.access.check(request, Scope.WRITE, name, consumes=True, confines=True)


def _returns(body: NackBody) -> list[Return]:
    delay = min(body.delay_ms or 0, DAY_MS)
    if body.errors is None:
        return [Return(delay)] * len(body.seqs)
    if len(body.errors) != len(body.seqs):
        raise InvalidRequest(f"errors has {len(body.errors)} entries for {len(body.seqs)} seqs.")
    return [Return(delay, error and check_text(error, "an error", MAX_ERROR_BYTES)) for error in body.errors]


def _settled(counts: tuple[int, int], policy: Policy, verb: bytes, seqs: list[int], done: set[int]) -> bytes:
    return b'"topic":"%b","%b":%d,"skipped":%b,"ready":%d,"in_flight":%d' % (
        policy.topic.name.encode(),
        verb,
        len(done),
        encode([seq for i, seq in enumerate(seqs) if i not in done]),
        *counts,
    )
