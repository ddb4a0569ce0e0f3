"""Messages in the messages dialect: list, show, count, and delete by key."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Key, Scope
from app.errors import Forbidden, InvalidRequest, MethodNotAllowed, TopicNotFound
from app.http.access import must_cover
from app.http.bounds import NO_NUL
from app.http.context import Context
from app.http.fields import CURSOR, cursor_of, cursor_to, encode, foreign_cursor
from app.http.messages.ids import first_place, job_of, later_places, no_message
from app.http.messages.message import Message, PurgeAnswer, write_message
from app.http.openapi import NAME, query
from app.http.route import Call
from app.http.sight import as_seen
from app.kernel import jobs
from app.kernel.jobs import JobPlace, Status
from app.kernel.model import MAX_JOB_KEY
from app.kernel.topics import store
from app.kernel.topics.policy import check_name
from app.kernel.topics.settings import BIGINT_MAX

MAX_LIMIT: Final = 200
MAX_OFFSET: Final = 10_000  # a page reads everything before its offset; the cursor doesn't
MAX_OFFSET_OF_ALL: Final = 800
TOPICS_AT_ONCE: Final = 1_000

LIMIT: Final = query("limit", f"1 to {MAX_LIMIT}, clamped.", {"type": "integer", "default": 50})
OFFSET: Final = query(
    "offset",
    f"Skip this many messages. At most {MAX_OFFSET_OF_ALL} without a topic.",
    {"type": "integer", "minimum": 0, "maximum": MAX_OFFSET, "default": 0},
)
STATUS: Final = query(
    "status",
    "Only messages of this status. Only with topic.",
    {"type": "string", "enum": [status.value for status in Status]},
)
SUSPECTED: Final = query(
    "suspected_poison",
    f"true: only messages whose lease ran out twice or more. Only with topic. A page searches {jobs.LOOKED_AT} "
    "messages, newest first, and total counts the matches among them. next_cursor leads to the next page.",
    {"type": "string", "enum": ["true", "false"]},
)
ENCODING: Final = query("encoding", "base64: payloads are in base64.", {"type": "string", "enum": ["base64"]})
TOPIC: Final = query("topic", "Only messages of this topic.", NAME)
KEY: Final = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": f"The messages' key: 1 to {MAX_JOB_KEY} characters. It may contain slashes.",
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_JOB_KEY, "pattern": NO_NUL},
}
OF_PAGES: Final = (TOPIC, STATUS, SUSPECTED, LIMIT, OFFSET, CURSOR, ENCODING)
VERBS: Final = {"ack", "batch", "dequeue"}  # paths of other methods that look like ids
_WHOLE: Final = re.compile(r"-?[0-9]{1,1000}\Z")


class MessagePage(msgspec.Struct):
    """A page of messages, newest first. total: the number on all pages. next_cursor: absent on the last page."""

    items: list[Message]
    total: int
    limit: int
    offset: int
    next_cursor: str | UnsetType = UNSET


class TopicCount(msgspec.Struct):
    """The number of a topic's messages of one status."""

    topic: str
    status: str
    count: int


class StatsAnswer(msgspec.Struct):
    """Counts by topic and status, without zeros."""

    topics: list[TopicCount]


async def page(call: Call) -> Response:
    """List messages of one topic or of all, newest first."""
    request, context, key = call.request, call.context, call.key
    given = request.query_params
    limit = min(max(_whole(given.get("limit", "50"), "limit"), 1), MAX_LIMIT)
    offset = _whole(given.get("offset", "0"), "offset")
    status, base64 = _status(given.get("status")), _base64(request)
    suspected = _only_suspected(given.get("suspected_poison"))
    name, below = given.get("topic"), cursor_of(request, dict[str, int])
    if name is None:
        if key is not None and key.prefixes:
            raise Forbidden("This key is limited to some topics. Name one of them in topic.")
        _check_offset(offset, MAX_OFFSET_OF_ALL)
        if status is not None or below is not None or suspected:
            raise InvalidRequest("status, suspected_poison and cursor require a topic.")
        places = await jobs.newest(context.pools.rest, limit, offset)
        items, _ = await _items(context, key, places, base64=base64)
        total = await jobs.count_all(context.pools.rest)
        return _page(items, max(total, len(items)), limit, offset, None)
    must_cover(key, check_name(name))
    _check_offset(offset, MAX_OFFSET)
    try:
        policy = await context.policies.queue(name)
    except TopicNotFound:
        return _page([], 0, limit, offset, None)
    start = BIGINT_MAX if below is None else below.get("below", BIGINT_MAX)
    if not 0 <= start <= BIGINT_MAX:
        raise foreign_cursor()
    found = await jobs.page(
        context.pools.rest, policy.topic, status, below=start, limit=limit, offset=offset, suspected=suspected
    )
    places = [JobPlace(name, policy.topic.id, seq) for seq in found.seqs]
    items, last = await _items(context, key, places, base64=base64)
    below_next = found.next_below if last is None or last == found.seqs[-1] else last
    if found.matched is not None:
        return _page(items, found.matched, limit, offset, below_next)
    (counts,) = await jobs.statuses(context.pools.rest, [policy.topic])
    return _page(items, counts.of(status), limit, offset, below_next)


async def get(call: Call) -> Response:
    """Get a message of any status. Acknowledged messages are gone."""
    request, context, key = call.request, call.context, call.key
    base64 = _base64(request)
    message_id: str = request.path_params["id"]
    if message_id in VERBS:
        raise MethodNotAllowed(f"{request.url.path} does not support GET.")
    job = job_of(message_id)
    for later in (False, True):
        found = (await later_places(context, key, [job])).get(0) if later else await first_place(context, key, job)
        if found is None:
            continue
        policy, seq = found
        for item in await jobs.show(context.pools.rest, [JobPlace(policy.topic.name, policy.topic.id, seq)]):
            return _json(write_message(policy, as_seen(key, item.topic, item), base64=base64))
    raise no_message(message_id)


async def stats(call: Call) -> StatsAnswer:
    """Count messages by topic and status."""
    context = call.context
    allowed = context.access.prefixes(call.request, Scope.ADMIN)
    counted: list[TopicCount] = []
    async for policies in store.queues(
        context.pools.rest, TOPICS_AT_ONCE, defaults=context.policies.defaults, allowed=allowed
    ):
        queues = [policy.topic for policy in policies]
        for counts in sorted(await jobs.statuses(context.pools.rest, queues), key=lambda one: one.topic):
            for status in sorted(Status, key=lambda one: one.value):
                if counts.of(status) > 0:
                    counted.append(TopicCount(counts.topic, status.value, counts.of(status)))
    return StatsAnswer(counted)


async def delete_by_key(call: Call) -> PurgeAnswer:
    """Delete all messages with a key, whatever their status, including leased ones."""
    key = call.request.path_params["key"]
    check_name(call.topic)
    if not 0 < len(key) <= MAX_JOB_KEY or "\0" in key:
        raise InvalidRequest(f"A key must have 1 to {MAX_JOB_KEY} characters and no NUL.")
    try:
        policy = await call.queue()
    except TopicNotFound:
        return PurgeAnswer(0)
    return PurgeAnswer(await call.context.engine.exits.delete_key(policy, "", key))


async def _items(
    context: Context, key: Key | None, places: list[JobPlace], *, base64: bool
) -> tuple[list[bytes], int | None]:
    """The messages that exist and fit into an answer by size, and the last one's seq."""
    items, last = [], None
    for item in await jobs.show(context.pools.rest, places):
        last = item.seq
        try:
            policy = await context.policies.queue(item.topic)
        except TopicNotFound:
            continue  # deleted meanwhile
        items.append(write_message(policy, as_seen(key, item.topic, item), base64=base64))
    return items, last


def _page(items: list[bytes], total: int, limit: int, offset: int, below: int | None) -> Response:
    more = b"" if below is None else b',"next_cursor":%b' % encode(cursor_to({"below": below}))
    return _json(b'{"items":[%b],"total":%d,"limit":%d,"offset":%d%b}' % (b",".join(items), total, limit, offset, more))


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _whole(given: str, name: str) -> int:
    if _WHOLE.match(given) is None:
        raise InvalidRequest(f"{name} must be a whole number.")
    return int(given)


def _check_offset(offset: int, most: int) -> None:
    if not 0 <= offset <= most:
        raise InvalidRequest(f"offset must be 0 to {most}. To go further in a topic, use next_cursor.")


def _status(given: str | None) -> Status | None:
    try:
        return None if given is None else Status(given)
    except ValueError:
        raise InvalidRequest(f"status must be one of {', '.join(status.value for status in Status)}.") from None


def _only_suspected(given: str | None) -> bool:
    if given not in {None, "true", "false"}:
        raise InvalidRequest("suspected_poison must be true or false.")
    return given == "true"


def _base64(request: Request) -> bool:
    given = request.query_params.get("encoding")
    if given not in {None, "base64"}:
        raise InvalidRequest("encoding must be base64 or absent.")
    return given is not None
