"""POST /v0/topics/:topic: enqueue jobs into a queue, or append records to a log."""

from __future__ import annotations

import time
from typing import Final, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import Forbidden, RecordTooLarge, TopicExistsIncompatible, TopicFull, TopicNotFound
from app.features.topics.changes import configure
from app.features.topics.v0 import extent_of
from app.http import options
from app.http.body import Few, read_json
from app.http.bounds import MAX_RECORDS
from app.http.calls import count_as
from app.http.context import Context
from app.http.fields import encode, flag
from app.http.openapi import query
from app.http.route import Call
from app.http.spans import spans_of
from app.http.v0.dialect import answer, fsync_since
from app.http.v0.records import AppendBody, LogAppendBody, columns_of
from app.kernel.enqueue.producer import Placement
from app.kernel.logs.log import AppendOutcome
from app.kernel.model import Batch, Seq
from app.kernel.topics import store, webhooks
from app.kernel.topics.policy import Policy, check_name, resolve
from app.kernel.topics.settings import NAME, Config, TopicType

RETURN_SEQS: Final = query("return_seqs", "false: leave seqs out of the answer.", {"type": "boolean", "default": True})

_jobs = Few(AppendBody, "records", MAX_RECORDS)
_records = Few(LogAppendBody, "records", MAX_RECORDS)


class _Either:
    """Decodes the body for a topic that does not exist yet. A queue refuses fields that a log ignores."""

    def decode(self, body: bytes) -> AppendBody | LogAppendBody:
        """Decode a body as the type of topic that it asks for."""
        try:
            jobs = _jobs.decode(body)
        except msgspec.ValidationError:
            records = _records.decode(body)
            if records.config is not None and records.config.type == "queue":
                raise
            return records
        return jobs if jobs.config is not None and jobs.config.type == "queue" else _records.decode(body)


_either = _Either()


async def append(call: Call) -> Response:
    """Enqueue jobs into a queue, or append records to a log, all or none. A topic that does not exist is created, by
    default as a log."""
    request, context, name, by = call.request, call.context, call.topic, call.key
    # Before the body, as its fields depend on the topic.
    policy = await _find_policy(context, name)
    kind = None if policy is None else policy.config.type
    if by is not None and by.tenant is not None and kind is not TopicType.QUEUE:
        raise Forbidden("This key is for the jobs of one tenant, and this topic is not a queue.")
    decoder = _jobs if kind is TopicType.QUEUE else _either if kind is None else _records
    body = await read_json(request, decoder, context.settings.max_body_bytes)
    if policy is None:
        check_name(name)
    batch, size = columns_of(body, _priority_order(policy, body))
    if isinstance(body, AppendBody):
        options.admit_jobs(by, name, batch)
    key = options.idempotency_key(request, by, body.idempotency_key)
    plain = not request.scope["query_string"] or flag(request, "return_seqs", default=True)
    if policy is not None and body.config is not None:
        # The configuration is not used for an existing topic, but an invalid one is always refused.
        resolve(name, body.config)
        webhooks.check_setting(name, body.config.webhook, signs=context.settings.webhook_secret is not None)
    created = deduped = False
    head = 0  # 0: the last seq of this call
    duplicates: list[int] = []
    if policy is None:
        policy, created = await _create(request, context, name, body)
    sent = time.perf_counter()
    _must_fit(policy.config, batch, size)
    if policy.config.type is TopicType.LOG:
        count_as(request, "append")
        seqs, deduped = await _append(context, policy, batch, size, key)
    else:
        try:
            found = await context.engine.enqueues.place(
                policy, batch, size + spans_of(request).begin_send(name, batch), key
            )
        except TopicFull as full:
            extent, _ = await extent_of(context, policy)
            where = {field: extent[field] for field in ("head_seq", "earliest_seq")}
            raise TopicFull(full.message, {**(full.detail or {}), **where}) from None
        if not isinstance(found, Placement):
            seqs = found
        else:
            seqs, head, deduped = found.seqs, found.head_seq, found.repeated
            duplicates = [] if deduped else found.duplicates
        spans_of(request).set_seqs(seqs)
    timings = fsync_since(sent) if policy.config.durable else b""
    shown = b',"seqs":%b' % encode(seqs) if plain else b""
    if duplicates:
        shown += b',"duplicates":%b' % encode(duplicates)
    fields = b'"topic":"%b","first_seq":%d,"last_seq":%d%b,"head_seq":%d,"count":%d,"created":%b,"deduped":%b' % (
        name.encode(),
        min(seqs),
        last := max(seqs),
        shown,
        max(head, last),
        len(seqs),
        b"true" if created else b"false",
        b"true" if deduped else b"false",
    )
    return answer(fields, call.began, timings, 201 if created else 200)


def _priority_order(policy: Policy | None, body: AppendBody | LogAppendBody) -> str:
    asked = body.config.priority_order if policy is None and body.config is not None else None
    return asked or (Config() if policy is None else policy.config).priority_order


def _must_fit(config: Config, batch: Batch, size: int) -> None:
    """Raises RecordTooLarge if the batch would not even fit into the empty topic."""
    if config.type is TopicType.QUEUE:
        size = sum(map(len, batch.payloads))  # queues only count payloads
    if config.discard == "reject" and (0 < config.cap_records < len(batch) or 0 < config.cap_bytes < size):
        raise RecordTooLarge(
            "The batch is larger than the topic's limits.",
            {"records": len(batch), "bytes": size, "cap_records": config.cap_records, "cap_bytes": config.cap_bytes},
        )


async def _append(context: Context, policy: Policy, batch: Batch, size: int, key: str | None) -> tuple[list[Seq], bool]:
    appended = await context.engine.logs.append(policy, batch, size, key)
    seqs = cast("list[Seq]", list(range(appended.first_seq, appended.last_seq + 1)))
    return seqs, appended.outcome is AppendOutcome.DEDUPED


async def _find_policy(context: Context, name: str) -> Policy | None:
    try:
        return await context.policies.get(name) if NAME.match(name) else None
    except TopicNotFound:
        return None


async def _create(
    request: Request, context: Context, name: str, body: AppendBody | LogAppendBody
) -> tuple[Policy, bool]:
    asked = body.config
    wanted = body.create if body.create is not None else asked is None or asked.auto_create is not False
    if not wanted:
        raise TopicNotFound(name)
    if asked is None:
        created = await store.create(context.pools.rest, name, Config(), context.access.actor(request))
        context.policies.announce(name)
    else:
        context.access.check(request, Scope.ADMIN, name)
        *_, created = await configure(request, context, name, asked, replace=False)
    policy = await context.policies.get(name)
    if isinstance(body, AppendBody) != (policy.config.type is TopicType.QUEUE):
        raise TopicExistsIncompatible(
            f"Topic {name!r} was just created as a {policy.config.type.value} by another call.",
            {
                "topic": name,
                "existing_type": policy.config.type.value,
                "requested_type": "queue" if isinstance(body, AppendBody) else "log",
            },
        )
    return policy, created
