"""POST /v0/topics/:topic/claim."""

from __future__ import annotations

import time
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct, tenancy
from app.api.body import read_json
from app.api.calls import LEFT, count_as, ended_with
from app.api.departure import has_left, while_connected
from app.api.fields import topic_in
from app.api.openapi import TOPIC, operation
from app.api.traced import claimed
from app.api.traced import claims as begins
from app.api.v0 import counts
from app.api.v0.bodies import ClaimAnswer, ClaimBody
from app.api.v0.fields import answer, check_node, job_fields
from app.edge.context import context_of
from app.engine.claims import MAX_CLAIM, Claimer
from app.errors import Throttled, Unauthorized, Unavailable
from app.keys import Scope
from app.topics.config import Policy, check_name, clamp_lease

router = direct.router("jobs")

NEEDED: Final = Scope.READ | Scope.WRITE  # put together once: that takes a microsecond

_body = msgspec.json.Decoder(ClaimBody)


@router.post(
    "/v0/topics/{topic}/claim",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, counts.COUNTS],
        body=ClaimBody,
        answers={200: ClaimAnswer},
        errors=[400, 401, 403, 404, 409, 413, 415, 503],
    ),
)
async def claim(request: Request) -> Response:
    """Lease up to `max` jobs to a worker; with `wait_ms`, wait so long for the first."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    key = context.access.check(request, NEEDED, name, consumes=True, confines=True)
    body = await read_json(request, _body, context.settings.max_body_bytes)
    context.quota.must_have_room(0)  # an answer may be large, and lies here until it is read
    counted = counts.wanted(request)
    check_name(name)
    check_node(body.node)
    policy = await context.policies.queue(name)
    begins(request, name)
    context.engine.reads.note(policy.topic.id)
    claimer = claimer_of(policy, body.node, body.max, body.lease_ms, tenancy.claimed_by(key, body.tenants))
    claims, settlements = context.engine.claims, context.engine.settlements
    if body.wait_ms:
        count_as(request, "claim_wait")  # its time is the wait's
    if body.wait_ms or policy.config.claim_jitter_ms:
        # What is claimed for one who left goes back.
        jobs = await while_connected(request, claims.claim(claimer, (body.wait_ms or 0) / 1000)) or []
        if not context.access.still_good(key):
            await settlements.give_back(policy, body.node, jobs)
            raise Unauthorized("This key was revoked or has expired.")
    else:
        jobs = await claims.claim(claimer)
    try:
        context.quota.must_have_room(0)
        ready = await counts.ready(context, key, policy) if counted else b""
    except (Throttled, Unavailable):
        await settlements.give_back(policy, body.node, jobs)
        raise
    if jobs and has_left(request):
        await settlements.give_back(policy, body.node, jobs)
        ended_with(request, LEFT)
        return Response(status_code=499)  # nobody reads it
    claimed(request, name, jobs)
    placed = sorted(enumerate(jobs, 1), key=lambda one: one[1].seq)
    fields = b'"topic":"%b","claimed":[%b],"count":%d%b' % (
        name.encode(),
        b",".join([b'{%b,"order":%d}' % (job_fields(name, job), order) for order, job in placed]),
        len(jobs),
        ready,
    )
    return answer(fields, began, b',"throttle_wait_ms":0.0')


def claimer_of(
    policy: Policy, node: str, most: int | None, lease_ms: int | None, tenants: frozenset[str] | None = None
) -> Claimer:
    """A claimer with its bounds clamped; what is absent is the topic's, or one job."""
    lease = policy.config.lease_ms if lease_ms is None else clamp_lease(lease_ms)
    return Claimer(policy, node, min(most or 1, MAX_CLAIM), lease, tenants=tenants)
