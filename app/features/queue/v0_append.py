"""POST /v0/topics/:topic: records into a queue or a log."""

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

RETURN_SEQS: Final = query("return_seqs", "false leaves seqs out of the answer.", {"type": "boolean", "default": True})

_jobs = Few(AppendBody, "records", MAX_RECORDS)
_records = Few(LogAppendBody, "records", MAX_RECORDS)


class _Either:
    """For a topic that is yet to be made: of a queue, what a log would ignore may be refused."""

    def decode(self, body: bytes) -> AppendBody | LogAppendBody:
        """The body, as the topic that it asks for takes it."""
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
    """Put records into a topic, all of them or none: each a job of a queue, or a record of a log. A topic that is
    absent is made, by default as a log."""
    request, context, name, by = call.request, call.context, call.topic, call.key
    # Before the body: what its fields may be depends on the topic.
    policy = await _find_policy(context, name)
    kind = None if policy is None else policy.config.type
    if by is not None and by.tenant is not None and kind is not TopicType.QUEUE:
        raise Forbidden("This key is for the jobs of one tenant, and this is no queue.")
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
        # Which counts for nothing here; but what makes no sense is said every time.
        resolve(name, body.config)
        webhooks.check_setting(name, body.config.webhook, signs=context.settings.webhook_secret is not None)
    created = deduped = False
    head = 0  # unless it is known, the last of these is
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
    """The topic's, or that of the topic which this call makes."""
    asked = body.config.priority_order if policy is None and body.config is not None else None
    return asked or (Config() if policy is None else policy.config).priority_order


def _must_fit(config: Config, batch: Batch, size: int) -> None:
    """Raises RecordTooLarge where the batch would be refused however empty the topic is."""
    if config.type is TopicType.QUEUE:
        size = sum(map(len, batch.payloads))  # what a queue counts
    if config.discard == "reject" and (0 < config.cap_records < len(batch) or 0 < config.cap_bytes < size):
        raise RecordTooLarge(
            "The batch is larger than all that this topic may hold.",
            {"records": len(batch), "bytes": size, "cap_records": config.cap_records, "cap_bytes": config.cap_bytes},
        )


async def _append(context: Context, policy: Policy, batch: Batch, size: int, key: str | None) -> tuple[list[Seq], bool]:
    """Append to a log: the seqs, and whether they are those of an earlier batch with the same key."""
    appended = await context.engine.logs.append(policy, batch, size, key)
    seqs = cast("list[Seq]", list(range(appended.first_seq, appended.last_seq + 1)))
    return seqs, appended.outcome is AppendOutcome.DEDUPED


async def _find_policy(context: Context, name: str) -> Policy | None:
    """The topic's policy; None if there is no such topic, or can't be one of this name."""
    try:
        return await context.policies.get(name) if NAME.match(name) else None
    except TopicNotFound:
        return None


async def _create(
    request: Request, context: Context, name: str, body: AppendBody | LogAppendBody
) -> tuple[Policy, bool]:
    """Make the topic, unless it is not to be made; and whether it was made by this call."""
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
            f"Topic {name!r} was made as a {policy.config.type.value} at this moment.",
            {
                "topic": name,
                "existing_type": policy.config.type.value,
                "requested_type": "queue" if isinstance(body, AppendBody) else "log",
            },
        )
    return policy, created
