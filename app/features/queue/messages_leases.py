"""POST /api/messages/dequeue; ack, nack and extend of a message; ack of many.

Any caller that knows the id of a leased message can settle it. With a lease_id, only that lease counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.log import TOPIC
from app.errors import BatchTooLarge, InvalidRequest, NotFound, TopicNotFound
from app.features.queue.messages_bodies import (
    AckBatchBody,
    DequeueBody,
    MessageAck,
    MessageExtend,
    MessageNack,
)
from app.features.queue.results import parallel_list, progress_of, result_of
from app.http import sight
from app.http.access import must_cover
from app.http.body import read_json
from app.http.bounds import MAX_ERROR_BYTES, MAX_SEQS
from app.http.calls import count_as
from app.http.context import Context, context_of
from app.http.departure import handing_out, while_connected
from app.http.fields import check_text, encode, lease_of
from app.http.messages.ids import Place, first_place, job_of, later_places, no_message
from app.http.messages.message import time_of, write_claimed
from app.http.route import Call
from app.http.spans import spans_of
from app.kernel.claim.consumer import Return
from app.kernel.claim.walk import Claimer
from app.kernel.model import HeldJob, Seq
from app.kernel.topics.backoff import MOST_REFUNDS
from app.kernel.topics.policy import Policy, check_name, clamp_lease

NODE: Final = "messages"  # the holder of all jobs that are claimed in this dialect, which has no nodes
ABSENT_SECONDS: Final = 1.0  # a call that waits for a missing topic looks for it this often, besides notifications

_body = msgspec.json.Decoder(DequeueBody)


async def dequeue(call: Call) -> Response:
    """Take up to `count` messages. They are hidden from other consumers until they are acknowledged or their visibility
    timeout ends. With `wait_seconds`, wait for the first message. A topic that does not exist has no messages."""
    request, context, key = call.request, call.context, call.key
    body = await read_json(request, _body, context.settings.max_body_bytes)
    context.quota.must_have_room(0)  # the answer may be large, and stays in memory until it is sent
    check_name(body.topic)
    request.scope[TOPIC] = body.topic
    must_cover(key, body.topic)
    wait = body.wait_seconds or 0
    if wait:
        count_as(request, "claim_wait")  # most of its time is waiting
    try:
        policy = await context.policies.queue(body.topic)
    except TopicNotFound:
        found = await while_connected(request, _wait_until_made(context, body.topic, wait)) if wait else None
        if found is None:
            return _answer([])
        policy, wait = found
    spans_of(request).begin_claim(body.topic)
    context.engine.reads.note(policy.topic.id)
    lease_ms = lease_ms_of(policy, body.visibility_timeout_seconds)
    tenants = sight.tenants_for(key, body.tenants)
    claimer = Claimer(policy, NODE, body.count or 1, lease_ms, whole=True, tenants=tenants)
    claims = context.engine.claims
    if wait or policy.config.claim_jitter_ms:
        # If the client disconnects, its jobs are returned.
        jobs = await while_connected(request, claims.claim(claimer, wait))
    else:
        jobs = await claims.claim(claimer)
    async with handing_out(request, key, NODE, [(policy, jobs)]):
        shown = [write_claimed(policy, job, base64=body.encoding is not None) for job in jobs]
    spans_of(request).set_jobs(body.topic, jobs)
    context.names.learn(policy.topic)
    return _answer(shown)


def lease_ms_of(policy: Policy, seconds: float | None) -> int:
    """Return the length of a lease in ms: the given one, clamped, or the topic's."""
    if seconds is None or seconds <= 0:
        return policy.config.lease_ms
    return clamp_lease(round(min(seconds, 1_000_000) * 1000))


async def _wait_until_made(context: Context, name: str, seconds: float) -> tuple[Policy, float] | None:
    """Wait until a topic is created. Returns its policy and the seconds left, or None after `seconds`."""
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
                # All waiting calls look at the same moment, so that they share the look.
                await asyncio.wait([changed], timeout=min(until - now, ABSENT_SECONDS - now % ABSENT_SECONDS))
    return policy, max(until - time.monotonic(), 0)


def _answer(messages: list[bytes]) -> Response:
    return Response(b'{"messages":[%b]}' % b",".join(messages), media_type="application/json")


_ack_body = msgspec.json.Decoder(MessageAck)
_ack_batch_body = msgspec.json.Decoder(AckBatchBody)
_nack_body = msgspec.json.Decoder(MessageNack)
_extend_body = msgspec.json.Decoder(MessageExtend)

Settle = Callable[[Policy, HeldJob], Awaitable[bool]]


async def ack(call: Call) -> Response:
    """Complete a message. It is deleted, and its result is kept. 404 if the caller does not hold it any more."""
    request, context, key = call.request, call.context, call.key
    body = await read_json(request, _ack_body, context.settings.max_body_bytes, empty=b"{}")
    result = result_of(body.result)
    results = [] if result is None else [result]
    settlements = context.engine.settlements

    async def settle(policy: Policy, held: HeldJob) -> bool:
        return bool(await settlements.ack(policy, [held], results))

    await _settle(request, "ack", key, body.lease_id, settle)
    return Response(status_code=204)


async def nack(call: Call) -> Response:
    """Return a message to its topic. A message with no deliveries left becomes a dead letter, or fails. With `refund`,
    the answer is a 200 that says whether the delivery was refunded. 404 if the caller does not hold it any more."""
    request, context, key = call.request, call.context, call.key
    body = await read_json(request, _nack_body, context.settings.max_body_bytes, empty=b"{}")
    error = None if body.error is None else check_text(body.error, "error", MAX_ERROR_BYTES)
    delay_ms = None if body.delay_seconds is None else round(body.delay_seconds * 1000)
    back = Return(delay_ms, error, MOST_REFUNDS if body.refund else 0)
    settlements = context.engine.settlements
    refunded: set[int] = set()

    async def settle(policy: Policy, held: HeldJob) -> bool:
        return bool(await settlements.nack(policy, [held], [back], refunded))

    await _settle(request, "nack", key, body.lease_id, settle)
    if not body.refund:
        return Response(status_code=204)
    answer = encode({"id": request.path_params["id"].lower(), "refunded": bool(refunded)})
    return Response(answer, media_type="application/json")


async def extend(call: Call) -> Response:
    """Extend a message's visibility timeout from now, and optionally report progress. It is the heartbeat of long work.
    404 if the caller does not hold the message any more."""
    request, context, key = call.request, call.context, call.key
    body = await read_json(request, _extend_body, context.settings.max_body_bytes, empty=b"{}")
    progress = [] if body.progress is None else [progress_of(body.progress)]
    settlements = context.engine.settlements
    until: list[int] = []
    cancelled: set[int] = set()

    async def settle(policy: Policy, held: HeldJob) -> bool:
        lease_ms = lease_ms_of(policy, body.visibility_timeout_seconds)
        until.extend((await settlements.extend(policy, [held], lease_ms, progress, cancelled)).values())
        return bool(until)

    await _settle(request, None, key, body.lease_id, settle)
    shown = b'{"id":%b,"visibility_timeout":"%b"%b}' % (
        encode(request.path_params["id"].lower()),
        time_of(until[0]),
        b',"cancelled":true' if cancelled else b"",
    )
    return Response(shown, media_type="application/json")


async def ack_batch(call: Call) -> Response:
    """Complete messages of any topics. Messages that the caller does not hold are skipped."""
    request, context, key = call.request, call.context, call.key
    body = await read_json(request, _ack_batch_body, context.settings.max_body_bytes)
    if len(body.ids) > MAX_SEQS:
        raise BatchTooLarge(f"A call can have at most {MAX_SEQS} ids.")
    if body.lease_ids is not None and len(body.lease_ids) != len(body.ids):
        raise InvalidRequest(f"lease_ids has {len(body.lease_ids)} entries for {len(body.ids)} ids.")
    leases = [lease_of(token) for token in body.lease_ids or [""] * len(body.ids)]
    results = [result_of(one) for one in parallel_list(body.results, "results", len(body.ids), "ids")]
    jobs: dict[int, tuple[int, Seq]] = {}
    for i, message_id in enumerate(body.ids):
        try:
            jobs[i] = job_of(message_id)
        except NotFound:
            continue
    settlements = context.engine.settlements

    async def settle(places: dict[int, Place]) -> set[int]:
        by_topic: dict[int, list[int]] = {}
        for i, (policy, _) in places.items():
            by_topic.setdefault(policy.topic.id, []).append(i)

        async def of_topic(members: Sequence[int]) -> set[int]:
            held = [HeldJob(places[i][1], leases[i], None) for i in members]
            given = [results[i] for i in members] if results else []
            return {members[n] for n in await settlements.ack(places[members[0]][0], held, given)}

        done = await asyncio.gather(*map(of_topic, by_topic.values()))
        return set().union(*done)

    topics = await context.names.of_all({topic_id for topic_id, _ in jobs.values()})
    first = {i: await first_place(context, key, job) for i, job in jobs.items() if job[0] in topics}
    names = {place[0].topic.name for place in first.values() if place is not None}
    spans_of(request).begin_settle(
        next(iter(names)) if len(names) == 1 else None, "ack", [seq for _, seq in jobs.values()]
    )
    acked = await settle({i: place for i, place in first.items() if place is not None})
    left = [i for i in jobs if i not in acked]
    if left:
        later = await later_places(context, key, [jobs[i] for i in left])
        acked |= await settle({left[n]: place for n, place in later.items()})
    spans_of(request).set_count(len(acked))
    skipped = [message_id for i, message_id in enumerate(body.ids) if i not in acked]
    return Response(encode({"acked": len(acked), "skipped": skipped}), media_type="application/json")


async def _settle(request: Request, verb: str | None, key: Any, token: str | None, settle: Settle) -> None:
    """Settle the message in the path, also if it is a dead letter by now. With a `verb`, the call is traced.

    Raises NotFound if the caller does not hold the message.
    """
    context = context_of(request)
    message_id: str = request.path_params["id"]
    lease = lease_of(token or "")
    job = job_of(message_id)
    place = await first_place(context, key, job)
    if place is not None:
        request.scope[TOPIC] = place[0].topic.name
        if verb is not None:
            spans_of(request).begin_settle(place[0].topic.name, verb, job[1:])
    if place is None or not await settle(place[0], HeldJob(place[1], lease, None)):
        place = (await later_places(context, key, [job])).get(0)
        if place is None or not await settle(place[0], HeldJob(place[1], lease, None)):
            raise no_message(message_id)
    if verb is not None:
        spans_of(request).set_count(1)
