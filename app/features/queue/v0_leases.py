"""POST /v0/topics/:topic/claim and /v0/claim; ack, nack, fail and extend."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Key
from app.errors import BatchTooLarge, InvalidRequest
from app.features.queue.results import parallel_list, progress_of, result_of
from app.features.queue.v0_bodies import AckBody, ClaimAnyBody, ClaimBody, ExtendBody, FailBody, NackBody
from app.http import sight
from app.http.access import must_cover
from app.http.body import read_json
from app.http.bounds import DAY_MS, MAX_ERROR_BYTES, MAX_SEQS, seq_within
from app.http.calls import count_as
from app.http.context import Context
from app.http.departure import handing_out, while_connected
from app.http.fields import check_node, check_text, encode, flag, history, lease_of
from app.http.openapi import query
from app.http.route import Call
from app.http.spans import spans_of
from app.http.v0.dialect import answer, fsync_since
from app.kernel.claim.consumer import Return
from app.kernel.claim.walk import MAX_CLAIM, Claimer
from app.kernel.model import MAX_TAG_BYTES, HeldJob, Job, LeaseId, Seq, as_json
from app.kernel.topics.backoff import MOST_REFUNDS
from app.kernel.topics.policy import Policy, check_name, clamp_lease
from app.kernel.topics.settings import BIGINT_MAX

COUNTS: Final = query(
    "return_counts",
    "false: leave out the counts of ready and in-flight jobs, which saves a statement.",
    {"type": "boolean", "default": True},
)

_body = msgspec.json.Decoder(ClaimBody)
_any_body = msgspec.json.Decoder(ClaimAnyBody)


async def claim(call: Call) -> Response:
    """Lease up to `max` jobs to a worker. With `wait_ms`, wait for the first job."""
    request, context, name, key = call.request, call.context, call.topic, call.key
    body = await read_json(request, _body, context.settings.max_body_bytes)
    context.quota.must_have_room(0)  # the answer may be large, and stays in memory until it is sent
    counted = wants_counts(request)
    check_name(name)
    check_node(body.node)
    policy = await context.policies.queue(name)
    spans_of(request).begin_claim(name)
    context.engine.reads.note(policy.topic.id)
    claimer = claimer_of(
        policy, body.node, body.max, body.lease_ms, sight.tenants_for(key, body.tenants), tags=tags_of(body.tags)
    )
    claims = context.engine.claims
    if body.wait_ms:
        count_as(request, "claim_wait")  # most of its time is waiting
    if body.wait_ms or policy.config.claim_jitter_ms:
        # If the client disconnects, its jobs are returned.
        jobs = await while_connected(request, claims.claim(claimer, (body.wait_ms or 0) / 1000))
    else:
        jobs = await claims.claim(claimer)
    async with handing_out(request, key, body.node, [(policy, jobs)]):
        ready = await count_ready(context, key, policy) if counted else b""
    spans_of(request).set_jobs(name, jobs)
    placed = sorted(enumerate(jobs, 1), key=lambda one: one[1].seq)
    fields = b'"topic":"%b","claimed":[%b],"count":%d%b' % (
        name.encode(),
        b",".join([b'{%b,"order":%d}' % (job_fields(name, job), order) for order, job in placed]),
        len(jobs),
        ready,
    )
    return answer(fields, call.began, b',"throttle_wait_ms":0.0')


async def claim_any(call: Call) -> Response:
    """Lease up to `max` jobs in all from several topics, in the given order. With `wait_ms`, wait for the first job."""
    request, context, key = call.request, call.context, call.key
    body = await read_json(request, _any_body, context.settings.max_body_bytes)
    context.quota.must_have_room(0)  # the answer may be large, and stays in memory until it is sent
    counted = wants_counts(request)
    names = list(dict.fromkeys(body.topics))
    for name in names:
        check_name(name)
        must_cover(key, name)
    check_node(body.node)
    tenants, tags = sight.tenants_for(key, body.tenants), tags_of(body.tags)
    policies = [await context.policies.queue(name) for name in names]
    spans_of(request).begin_claim(names[0])
    for policy in policies:
        context.engine.reads.note(policy.topic.id)
    claimers = [claimer_of(policy, body.node, body.max, body.lease_ms, tenants, tags=tags) for policy in policies]
    if body.wait_ms:
        count_as(request, "claim_wait")
    claiming = context.engine.claims.claim_in_order(claimers, (body.wait_ms or 0) / 1000)
    found = list(zip(policies, await while_connected(request, claiming), strict=True))
    async with handing_out(request, key, body.node, found):
        ready = sum([(await sight.count_jobs(context, key, policy))[0] for policy in policies]) if counted else 0
    shown: list[bytes] = []
    for policy, jobs in found:
        name, before = policy.topic.name, len(shown)
        spans_of(request).set_jobs(name, jobs)
        for order, job in sorted(enumerate(jobs, before + 1), key=lambda one: one[1].seq):
            shown.append(b'{"topic":"%b",%b,"order":%d}' % (name.encode(), job_fields(name, job), order))
    fields = b'"claimed":[%b],"count":%d%b' % (b",".join(shown), len(shown), b',"ready":%d' % ready if counted else b"")
    return answer(fields, call.began, b',"throttle_wait_ms":0.0')


def tags_of(given: list[str] | None) -> frozenset[str] | None:
    """Check a claim's tags. Returns None if it has none. Raises InvalidRequest."""
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
    """Build a claimer with clamped bounds. The default is one job, with the topic's lease."""
    lease = policy.config.lease_ms if lease_ms is None else clamp_lease(lease_ms)
    return Claimer(policy, node, min(most or 1, MAX_CLAIM), lease, tenants=tenants, tags=tags)


_ack_body = msgspec.json.Decoder(AckBody)
_nack_body = msgspec.json.Decoder(NackBody)
_fail_body = msgspec.json.Decoder(FailBody)
_extend_body = msgspec.json.Decoder(ExtendBody)


async def ack(call: Call) -> Response:
    """Complete jobs, which deletes them. It is safe to repeat: a job that was completed with a result under the same
    lease counts as acked again."""
    request, context, name, key = call.request, call.context, call.topic, call.key
    body = await read_json(request, _ack_body, context.settings.max_body_bytes)
    counted = wants_counts(request)
    check_name(name)
    held = held_by(body.node, body.seqs, leases_of(body.lease_ids))
    if body.late:
        held = [msgspec.structs.replace(one, late=True) for one in held]
    results = [result_of(one) for one in parallel_list(body.results, "results", len(held), "seqs")]
    policy = await context.policies.queue(name)
    spans_of(request).begin_settle(name, "ack", body.seqs)
    sent = time.perf_counter()
    own = await sight.own_places(context, key, policy.topic, body.seqs)
    if own is None:
        done = await context.engine.settlements.ack(policy, held, results)
    else:
        given = [results[i] for i in own] if results else []
        done = {own[i] for i in await context.engine.settlements.ack(policy, [held[i] for i in own], given)}
    spans_of(request).set_count(len(done))
    timings = fsync_since(sent) if policy.config.durable else b""
    left = await count_both(context, key, policy) if counted else b""
    return answer(_outcome(policy, b"acked", body.seqs, done) + left, call.began, timings)


async def nack(call: Call) -> Response:
    """Return jobs to the queue after `delay_ms`, or by the topic's backoff, or at once. A job with no deliveries left
    becomes a dead letter, or fails."""
    request, context, name, key = call.request, call.context, call.topic, call.key
    body = await read_json(request, _nack_body, context.settings.max_body_bytes)
    counted = wants_counts(request)
    check_name(name)
    held = held_by(body.node, body.seqs, leases_of(body.lease_ids))
    returns = _returns(body)
    policy = await context.policies.queue(name)
    spans_of(request).begin_settle(name, "nack", body.seqs)
    mine = await _mine(context, key, policy, body.seqs)
    refunded: set[int] = set()
    settlements = context.engine.settlements
    back = await settlements.nack(policy, [held[i] for i in mine], [returns[i] for i in mine], refunded)
    done = {mine[i] for i in back}
    spans_of(request).set_count(len(done))
    fields = _outcome(policy, b"nacked", body.seqs, done)
    if counted:
        fields += await count_both(context, key, policy)
    if body.refund:
        fields += b',"refunded":%b' % encode([body.seqs[mine[i]] for i in sorted(refunded)])
    return answer(fields, call.began)


async def fail(call: Call) -> Response:
    """Fail jobs at once, even if they have deliveries left. They become dead letters, or stay as failed."""
    request, context, name, key = call.request, call.context, call.topic, call.key
    body = await read_json(request, _fail_body, context.settings.max_body_bytes)
    counted = wants_counts(request)
    check_name(name)
    held = held_by(body.node, body.seqs, leases_of(body.lease_ids))
    errors = _errors(body)
    policy = await context.policies.queue(name)
    spans_of(request).begin_settle(name, "fail", body.seqs)
    mine = await _mine(context, key, policy, body.seqs)
    out = await context.engine.settlements.fail(policy, [held[i] for i in mine], [errors[i] for i in mine])
    done = {mine[i] for i in out}
    spans_of(request).set_count(len(done))
    left = await count_both(context, key, policy) if counted else b""
    return answer(_outcome(policy, b"failed", body.seqs, done) + left, call.began)


async def extend(call: Call) -> Response:
    """Extend leases to end `lease_ms` from now, and optionally report progress. It is the heartbeat of long jobs."""
    request, context, name, key = call.request, call.context, call.topic, call.key
    body = await read_json(request, _extend_body, context.settings.max_body_bytes)
    check_name(name)
    held = held_by(body.node, body.seqs, leases_of(body.lease_ids))
    progress = [progress_of(one) for one in parallel_list(body.progress, "progress", len(held), "seqs")]
    policy = await context.policies.queue(name)
    lease_ms, own = clamp_lease(body.lease_ms), await sight.own_places(context, key, policy.topic, body.seqs)
    cancelled: set[int] = set()
    if own is None:
        done = await context.engine.settlements.extend(policy, held, lease_ms, progress, cancelled)
    else:
        mine: set[int] = set()
        given = [progress[i] for i in own] if progress else []
        extended = await context.engine.settlements.extend(policy, [held[i] for i in own], lease_ms, given, mine)
        done = {own[i]: deadline for i, deadline in extended.items()}
        cancelled = {own[i] for i in mine}
    fields = b'"topic":"%b","extended":%d,"skipped":%b,"deadlines":%b,"cancelled":%b' % (
        name.encode(),
        len(done),
        encode([seq for i, seq in enumerate(body.seqs) if i not in done]),
        encode({str(body.seqs[i]): deadline for i, deadline in done.items()}),
        encode([body.seqs[i] for i in sorted(cancelled)]),
    )
    return answer(fields, call.began)


async def _mine(context: Context, key: Key | None, policy: Policy, seqs: list[int]) -> Sequence[int]:
    own = await sight.own_places(context, key, policy.topic, seqs)
    return range(len(seqs)) if own is None else own


def _returns(body: NackBody) -> list[Return]:
    delay = None if body.delay_ms is None else min(body.delay_ms, DAY_MS)
    refunds = MOST_REFUNDS if body.refund else 0
    if body.errors is None:
        return [Return(delay, None, refunds)] * len(body.seqs)
    return [Return(delay, error, refunds) for error in _errors(body)]


def _errors(body: NackBody | FailBody) -> list[str | None]:
    if body.errors is None:
        return [None] * len(body.seqs)
    if len(body.errors) != len(body.seqs):
        raise InvalidRequest(f"errors has {len(body.errors)} entries for {len(body.seqs)} seqs.")
    return [error and check_text(error, "an error", MAX_ERROR_BYTES) for error in body.errors]


def _outcome(policy: Policy, verb: bytes, seqs: list[int], done: set[int]) -> bytes:
    return b'"topic":"%b","%b":%d,"skipped":%b' % (
        policy.topic.name.encode(),
        verb,
        len(done),
        encode([seq for i, seq in enumerate(seqs) if i not in done]),
    )


def leases_of(tokens: list[str] | None) -> list[LeaseId | None]:
    """Parse lease ids. "" is None: no fence. An unknown lease id matches no lease.

    Raises InvalidRequest for a text that is not a lease id.
    """
    return [lease_of(token) for token in tokens or ()]


def held_by(node: str, seqs: list[int], leases: list[LeaseId | None]) -> list[HeldJob]:
    """Build the jobs that a holder names. Raises InvalidRequest, BatchTooLarge."""
    check_node(node)
    if len(seqs) > MAX_SEQS:
        raise BatchTooLarge(f"A call can have at most {MAX_SEQS} seqs.", {"seqs": len(seqs), "max": MAX_SEQS})
    if seqs and max(seqs) > BIGINT_MAX:
        seqs = [seq_within(seq) for seq in seqs]
    if not leases:
        return [HeldJob(Seq(seq), None, node) for seq in seqs]
    if len(leases) != len(seqs):
        raise InvalidRequest(f"lease_ids has {len(leases)} entries for {len(seqs)} seqs.")
    return [HeldJob(Seq(seq), lease, node) for seq, lease in zip(seqs, leases, strict=True)]


def wants_counts(request: Request) -> bool:
    """Whether the answer must have the queue's counts, which make it slower. Raises InvalidRequest."""
    given: bytes = request.scope["query_string"]
    # The common cases need no parsing.
    return not given or (given != b"return_counts=false" and flag(request, "return_counts", default=True))


async def count_ready(context: Context, key: Key | None, policy: Policy) -> bytes:
    """Count ready jobs, as JSON of an answer. Raises Unavailable."""
    return b',"ready":%d' % (await sight.count_jobs(context, key, policy))[0]


async def count_both(context: Context, key: Key | None, policy: Policy) -> bytes:
    """Count ready and in-flight jobs, as JSON of an answer. Raises Unavailable."""
    return b',"ready":%d,"in_flight":%d' % await sight.count_jobs(context, key, policy)


def job_fields(topic: str, job: Job) -> bytes:
    """Encode a leased job's fields as JSON without the braces."""
    tag = b"" if job.tag is None else b'"$tag":%b,' % encode(job.tag)
    key = b"" if job.key is None else b'"key":%b,' % encode(job.key)
    group = b"" if job.group is None else b'"group":%b,' % encode(job.group)
    kind = b"" if job.content_type is None else b'"content_type":%b,' % encode(job.content_type)
    tenant = b'"tenant":%b,' % encode(job.tenant) if job.tenant else b""
    meta = meta_of(job)
    return (
        b'"$seq":%d,"lease_id":"lease_%b","deadline":%d,"$ts":%d,%b%b%b%b%b"deliveries":%d,%b"token":"%b:%d:lease_%b","data":%b%b'
        % (
            job.seq,
            lease := job.lease.encode(),
            job.deadline_ms,
            job.created_ms,
            tag,
            key,
            group,
            tenant,
            kind,
            job.deliveries,
            history(job.deliveries - 1, job.crashes, job.original_crashes),
            topic.encode(),
            job.seq,
            lease,
            job.payload if job.content_type is None else as_json(job.payload, job.content_type),
            b',"meta":%b' % meta if meta else b"",
        )
    )


def meta_of(job: Job) -> bytes:
    """Encode a job's metadata, with its origin if it is a dead letter. Empty if it has neither."""
    if job.original_topic is None:
        return job.metadata.encode() if job.metadata else b""
    provenance = {
        "$dead_letter_from": job.original_topic,
        "$dead_letter_deliveries": str(job.original_deliveries),
        "$dead_letter_src_seq": str(job.original_seq),
    }
    if job.original_crashes:
        provenance["$dead_letter_crashes"] = str(job.original_crashes)
    origin = encode(provenance)
    own = (job.metadata or "").strip()[1:-1].strip()
    return b"{%b,%b" % (own.encode(), origin[1:]) if own else origin
