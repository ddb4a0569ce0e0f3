"""POST /api/messages/dequeue."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec
from starlette.responses import Response

from app.base.log import TOPIC
from app.errors import TopicNotFound
from app.features.queue.messages_bodies import DequeueBody
from app.http import tenancy
from app.http.access import must_cover
from app.http.body import read_json
from app.http.calls import count_as
from app.http.context import Context
from app.http.departure import handing_out, while_connected
from app.http.messages.show import claimed
from app.http.route import Call
from app.http.traced import claimed as found_jobs
from app.http.traced import claims as begins
from app.kernel.claim.walk import Claimer
from app.kernel.topics.policy import Policy, check_name, clamp_lease

NODE: Final = "messages"  # who holds what is claimed in this dialect, which has no nodes
ABSENT_SECONDS: Final = 1.0  # how often who waits on a topic that is yet to be made looks for it, unless it hears of it

_body = msgspec.json.Decoder(DequeueBody)


async def dequeue(call: Call) -> Response:
    """Take up to `count` messages, hidden from others until they are acknowledged or their visibility timeout ends;
    with `wait_seconds`, wait so long for the first. A topic that is absent has none."""
    request, context, key = call.request, call.context, call.key
    body = await read_json(request, _body, context.settings.max_body_bytes)
    context.quota.must_have_room(0)  # an answer may be large, and lies here until it is read
    check_name(body.topic)
    request.scope[TOPIC] = body.topic
    must_cover(key, body.topic)
    wait = body.wait_seconds or 0
    if wait:
        count_as(request, "claim_wait")  # its time is the wait's
    try:
        policy = await context.policies.queue(body.topic)
    except TopicNotFound:
        found = await while_connected(request, _wait_until_made(context, body.topic, wait)) if wait else None
        if found is None:
            return _answer([])
        policy, wait = found
    begins(request, body.topic)
    context.engine.reads.note(policy.topic.id)
    lease_ms = lease_of(policy, body.visibility_timeout_seconds)
    tenants = tenancy.claimed_by(key, body.tenants)
    claimer = Claimer(policy, NODE, body.count or 1, lease_ms, whole=True, tenants=tenants)
    claims = context.engine.claims
    if wait or policy.config.claim_jitter_ms:
        # What is claimed for one who left goes back.
        jobs = await while_connected(request, claims.claim(claimer, wait))
    else:
        jobs = await claims.claim(claimer)
    async with handing_out(request, key, NODE, [(policy, jobs)]):
        shown = [claimed(policy, job, base64=body.encoding is not None) for job in jobs]
    found_jobs(request, body.topic, jobs)
    context.names.learn(policy.topic)
    return _answer(shown)


def lease_of(policy: Policy, seconds: float | None) -> int:
    """The length of a lease in ms: what was asked for, clamped; else the topic's."""
    if seconds is None or seconds <= 0:
        return policy.config.lease_ms
    return clamp_lease(round(min(seconds, 1_000_000) * 1000))


async def _wait_until_made(context: Context, name: str, seconds: float) -> tuple[Policy, float] | None:
    """The policy of a topic that is absent, once somebody has made it, and the seconds that are left; or None."""
    until = time.monotonic() + seconds
    policy = None
    while policy is None:
        with context.policies.watch(name) as changed:
            try:
                policy = await context.policies.queue(name)
            except TopicNotFound:
                now = time.monotonic()
                if now >= until:
                    return None
                # All who wait look at the same moment, and share the look.
                await asyncio.wait([changed], timeout=min(until - now, ABSENT_SECONDS - now % ABSENT_SECONDS))
    return policy, max(until - time.monotonic(), 0)


def _answer(messages: list[bytes]) -> Response:
    return Response(b'{"messages":[%b]}' % b",".join(messages), media_type="application/json")
