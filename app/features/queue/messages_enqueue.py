"""POST /api/messages and /api/messages/batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Key
from app.base.log import TOPIC
from app.errors import InvalidRequest, RecordTooLarge, TopicNotFound
from app.features.queue.messages_bodies import BatchAnswer, BatchBody, EnqueueBody, MessageFields
from app.http import options
from app.http.access import must_cover
from app.http.body import Few, read_json
from app.http.bounds import MAX_META_BYTES, MAX_RECORD_BYTES, MAX_RECORDS
from app.http.context import Context
from app.http.fields import encode
from app.http.payloads import BYTES, check_type, has_nul, of_base64, stored_type, type_of
from app.http.route import Call
from app.http.spans import spans_of
from app.http.users import USER_KEY
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch, id_of
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import DEAD_LETTERS

_one = msgspec.json.Decoder(EnqueueBody)
_many = Few(BatchBody, "messages", MAX_RECORDS)


async def enqueue(call: Call) -> Response:
    """Enqueue a message. Its topic is created if it does not exist."""
    request, context, key = call.request, call.context, call.key
    body = await read_json(request, _one, context.settings.max_body_bytes, nul=True)
    _check_topic(body.topic)
    request.scope[TOPIC] = body.topic
    must_cover(key, body.topic)
    done = await _enqueue(request, context, key, body, [body])
    return _answer(b'{"id":"%b"%b}' % (done.ids[0].encode(), b',"duplicate":true' if done.duplicates else b""))


async def enqueue_batch(call: Call) -> Response:
    """Enqueue messages into one topic, all or none. The topic is created if it does not exist."""
    request, context, key = call.request, call.context, call.key
    body = await read_json(request, _many, context.settings.max_body_bytes, nul=True)
    _check_topic(body.topic)
    request.scope[TOPIC] = body.topic
    must_cover(key, body.topic)
    if not body.messages:
        raise InvalidRequest("messages must have at least one message.")
    done = await _enqueue(request, context, key, body, body.messages)
    if done.repeated:
        return _answer(encode(BatchAnswer(done.ids, deduped=True)))
    return _answer(encode(BatchAnswer(done.ids, done.duplicates or UNSET)))


class _Placement(NamedTuple):
    """The messages' ids, the indexes of duplicates, and whether the ids are those of an earlier call with the same
    idempotency key."""

    ids: list[str]
    duplicates: list[int]
    repeated: bool


async def _enqueue(
    request: Request, context: Context, by: Key | None, body: EnqueueBody | BatchBody, messages: Sequence[MessageFields]
) -> _Placement:
    name = body.topic
    batch, size = _columns(messages)
    options.admit_jobs(by, name, batch)
    key = options.idempotency_key(request, by, body.idempotency_key)
    policy = await _queue(request, context, name)
    size += spans_of(request).begin_send(name, batch)
    find = partial(_queue, request, context)
    policy, found = await context.engine.enqueues.place_as_found(policy, batch, size, key, find)
    context.names.learn(policy.topic)
    topic_id = policy.topic.id
    seqs = found.seqs if isinstance(found, Placement) else found
    spans_of(request).set_seqs(seqs)
    ids = [id_of(topic_id, seq) for seq in seqs]
    if isinstance(found, Placement):
        return _Placement(ids, found.duplicates, found.repeated)
    return _Placement(ids, [], repeated=False)


async def _queue(request: Request, context: Context, name: str) -> Policy:
    try:
        return await context.policies.queue(name)
    except TopicNotFound:
        return await context.policies.queue_or_new(name, context.access.actor(request))


def _check_topic(name: str) -> None:
    check_name(name)
    if name.endswith(DEAD_LETTERS):
        raise InvalidRequest(f"Topics that end in {DEAD_LETTERS} hold dead letters. Nothing can be enqueued there.")


def _answer(content: bytes) -> Response:
    return Response(content, 201, media_type="application/json")


def _columns(messages: Sequence[MessageFields]) -> tuple[Batch, int]:
    """Check messages and turn them into columns. Returns these, and the bytes of all payloads and metadata.

    Raises InvalidRequest and RecordTooLarge. With several messages, the error names the message's index.
    """
    payloads: list[bytes] = []
    types: list[str | None] = []
    metadata: list[str | None] = []
    size = 0
    for i, message in enumerate(messages):
        try:
            payload, kind = _payload(message)
            text = _metadata(message.metadata, message.user_id)
            names = (("key", message.key), ("group", message.group), ("dedupe_id", message.dedupe_id))
            for field, given in names:
                if given is not None and "\0" in given:
                    raise InvalidRequest(f"{field} has a NUL character (U+0000), which can't be stored.")
            weight = len(payload) + (0 if text is None else len(text.encode()))
            if weight > MAX_RECORD_BYTES:
                raise RecordTooLarge(f"Payload and metadata have {weight} bytes. The limit is {MAX_RECORD_BYTES}.")
        except (InvalidRequest, RecordTooLarge) as error:
            if len(messages) == 1:
                raise
            raise type(error)(f"Message {i}: {error.message}") from None
        payloads.append(payload)
        types.append(kind)
        metadata.append(text)
        size += weight
    batch = Batch.of(
        payloads,
        metadata=metadata,
        content_types=types,
        delays_ms=[_ms(message.delay_seconds) for message in messages],
        ttls_ms=[_ms(message.ttl_seconds) for message in messages],
        **options.columns_of(messages),
    )
    return batch, size


def _payload(message: MessageFields) -> tuple[bytes, str | None]:
    if not message.payload:
        raise InvalidRequest("topic and payload are required.")
    asked = None if message.content_type is None else check_type(message.content_type)
    if message.encoding is not None:
        payload = of_base64(message.payload)
        return payload, stored_type(payload, asked or BYTES)
    payload = message.payload.encode()
    return payload, stored_type(payload, asked or type_of(message.payload))


def _metadata(metadata: dict[str, str] | None, user_id: str | None) -> str | None:
    if user_id is not None:
        metadata = {**(metadata or {}), USER_KEY: user_id}
    if metadata is None:
        return None
    text = encode(metadata)
    if len(text) > MAX_META_BYTES:
        raise InvalidRequest(f"metadata is longer than {MAX_META_BYTES} bytes.")
    if has_nul(text):
        raise InvalidRequest("metadata has a NUL character (U+0000), which can't be stored.")
    return text.decode()


def _ms(seconds: float | None) -> int | None:
    """Convert to whole ms. A time above 0 never becomes 0."""
    return None if seconds is None else max(round(seconds * 1000), seconds > 0)
