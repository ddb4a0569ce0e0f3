"""POST /v0/topics/:topic/claim and POST /v0/claim."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from app.features.queue.v0_answers import count_ready, counts_wanted, job_fields
from app.features.queue.v0_bodies import ClaimAnyBody, ClaimBody
from app.http import tenancy
from app.http.access import must_cover
from app.http.body import read_json
from app.http.calls import count_as
from app.http.departure import handing_out, while_connected
from app.http.fields import check_node, check_text
from app.http.route import Call
from app.http.traced import claimed
from app.http.traced import claims as begins
from app.http.v0.fields import answer
from app.kernel.claim.walk import MAX_CLAIM, Claimer
from app.kernel.model import MAX_TAG_BYTES
from app.kernel.topics.policy import Policy, check_name, clamp_lease

_body = msgspec.json.Decoder(ClaimBody)
_any_body = msgspec.json.Decoder(ClaimAnyBody)


async def claim(call: Call) -> Response:
    """Lease up to `max` jobs to a worker; with `wait_ms`, wait so long for the first."""
    request, context, name, key = call.request, call.context, call.topic, call.key
    body = await read_json(request, _body, context.settings.max_body_bytes)
    context.quota.must_have_room(0)  # an answer may be large, and lies here until it is read
    counted = counts_wanted(request)
    check_name(name)
    check_node(body.node)
    policy = await context.policies.queue(name)
    begins(request, name)
    context.engine.reads.note(policy.topic.id)
    claimer = claimer_of(
        policy, body.node, body.max, body.lease_ms, tenancy.claimed_by(key, body.tenants), tags=tags_of(body.tags)
    )
    claims = context.engine.claims
    if body.wait_ms:
        count_as(request, "claim_wait")  # its time is the wait's
    if body.wait_ms or policy.config.claim_jitter_ms:
        # What is claimed for one who left goes back.
        jobs = await while_connected(request, claims.claim(claimer, (body.wait_ms or 0) / 1000))
    else:
        jobs = await claims.claim(claimer)
    async with handing_out(request, key, body.node, [(policy, jobs)]):
        ready = await count_ready(context, key, policy) if counted else b""
    claimed(request, name, jobs)
    placed = sorted(enumerate(jobs, 1), key=lambda one: one[1].seq)
    fields = b'"topic":"%b","claimed":[%b],"count":%d%b' % (
        name.encode(),
        b",".join([b'{%b,"order":%d}' % (job_fields(name, job), order) for order, job in placed]),
        len(jobs),
        ready,
    )
    return answer(fields, call.began, b',"throttle_wait_ms":0.0')


async def claim_any(call: Call) -> Response:
    """Lease up to `max` jobs in all from several topics, in the order given; with `wait_ms`, wait so long for the
    first."""
    request, context, key = call.request, call.context, call.key
    body = await read_json(request, _any_body, context.settings.max_body_bytes)
    context.quota.must_have_room(0)  # an answer may be large, and lies here until it is read
    counted = counts_wanted(request)
    names = list(dict.fromkeys(body.topics))
    for name in names:
        check_name(name)
        must_cover(key, name)
    check_node(body.node)
    tenants, tags = tenancy.claimed_by(key, body.tenants), tags_of(body.tags)
    policies = [await context.policies.queue(name) for name in names]
    begins(request, names[0])
    for policy in policies:
        context.engine.reads.note(policy.topic.id)
    claimers = [claimer_of(policy, body.node, body.max, body.lease_ms, tenants, tags=tags) for policy in policies]
    if body.wait_ms:
        count_as(request, "claim_wait")
    claiming = context.engine.claims.claim_in_order(claimers, (body.wait_ms or 0) / 1000)
    found = list(zip(policies, await while_connected(request, claiming), strict=True))
    async with handing_out(request, key, body.node, found):
        ready = sum([(await tenancy.counts(context, key, policy))[0] for policy in policies]) if counted else 0
    shown: list[bytes] = []
    for policy, jobs in found:
        name, before = policy.topic.name, len(shown)
        claimed(request, name, jobs)
        for order, job in sorted(enumerate(jobs, before + 1), key=lambda one: one[1].seq):
            shown.append(b'{"topic":"%b",%b,"order":%d}' % (name.encode(), job_fields(name, job), order))
    fields = b'"claimed":[%b],"count":%d%b' % (b",".join(shown), len(shown), b',"ready":%d' % ready if counted else b"")
    return answer(fields, call.began, b',"throttle_wait_ms":0.0')


def tags_of(given: list[str] | None) -> frozenset[str] | None:
    """The tags that a claim names; None: it names none. Raises InvalidRequest."""
    return None if given is None else frozenset(check_text(tag, "tags", MAX_TAG_BYTES) for tag in given)


def claimer_of(
    policy: Policy,
    node: str,
    most: int | None,
    lease_ms: int | None,
    tenants: frozenset[str] | None = None,
    *,
    tags: frozenset[str] | None = None,
) -> Claimer:
    """A claimer with its bounds clamped; what is absent is the topic's, or one job."""
    lease = policy.config.lease_ms if lease_ms is None else clamp_lease(lease_ms)
    return Claimer(policy, node, min(most or 1, MAX_CLAIM), lease, tenants=tenants, tags=tags)
