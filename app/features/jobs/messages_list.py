"""GET /api/messages, /api/messages/:id and /api/stats: looking without touching."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Key, Scope
from app.errors import Forbidden, InvalidRequest, MethodNotAllowed, TopicNotFound
from app.http import direct
from app.http.access import must_cover
from app.http.context import Context, context_of
from app.http.fields import encode
from app.http.messages.bodies import Message, MessagePage, StatsAnswer, TopicCount
from app.http.messages.errors import operation
from app.http.messages.ids import ID, job_of, no_message
from app.http.messages.places import first_place, later_places
from app.http.messages.show import shown
from app.http.openapi import NAME, query
from app.http.paging import CURSOR, cursor_of, cursor_to
from app.http.sight import as_seen
from app.kernel import jobs
from app.kernel.jobs import Place, Status
from app.kernel.topics import store
from app.kernel.topics.policy import check_name
from app.kernel.topics.settings import BIGINT_MAX

router = direct.router("messages")

MAX_LIMIT: Final = 200
MAX_OFFSET: Final = 10_000  # beyond, each page would read all before it: the cursor does not
MAX_OFFSET_OF_ALL: Final = 800
TOPICS_AT_ONCE: Final = 1_000

LIMIT: Final = query("limit", f"1 to {MAX_LIMIT}, clamped.", {"type": "integer", "default": 50})
OFFSET: Final = query(
    "offset",
    f"Leave out so many first. Without a topic, {MAX_OFFSET_OF_ALL} at most.",
    {"type": "integer", "minimum": 0, "maximum": MAX_OFFSET, "default": 0},
)
STATUS: Final = query(
    "status", "Only those, of a topic.", {"type": "string", "enum": [status.value for status in Status]}
)
SUSPECTED: Final = query(
    "suspected_poison",
    f"true: only messages whose delivery ended by its deadline twice or more, of a topic. The {jobs.LOOKED_AT} newest "
    "are looked at, and make the total; next_cursor leads further.",
    {"type": "string", "enum": ["true", "false"]},
)
ENCODING: Final = query("encoding", "base64: payloads come as base64.", {"type": "string", "enum": ["base64"]})
VERBS: Final = {"ack", "batch", "dequeue"}  # what stands in the place of an id, for other methods
_WHOLE: Final = re.compile(r"-?[0-9]{1,1000}\Z")


@router.get(
    "/api/messages",
    response_class=Response,
    openapi_extra=operation(
        parameters=[
            query("topic", "Only messages of this topic.", NAME),
            *(STATUS, SUSPECTED, LIMIT, OFFSET, CURSOR, ENCODING),
        ],
        answers={200: MessagePage},
        errors=[400, 401, 403, 409, 503],
    ),
)
async def page(request: Request) -> Response:
    """Messages, the newest first: of a topic, or of all."""
    context = context_of(request)
    key = context.access.check(request, Scope.READ)
    given = request.query_params
    limit = min(max(_whole(given.get("limit", "50"), "limit"), 1), MAX_LIMIT)
    offset = _whole(given.get("offset", "0"), "offset")
    status, base64 = _status(given.get("status")), _base64(request)
    suspected = _suspected(given.get("suspected_poison"))
    name, below = given.get("topic"), cursor_of(request, dict[str, int])
    if name is None:
        if key is not None and key.prefixes:
            raise Forbidden("This key is for some topics only: name one.")
        _check_offset(offset, MAX_OFFSET_OF_ALL)
        if status is not None or below is not None or suspected:
            raise InvalidRequest("status, suspected_poison and cursor need a topic.")
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
        raise InvalidRequest("cursor is none that a list has answered.")
    found = await jobs.page(
        context.pools.rest, policy.topic, status, below=start, limit=limit, offset=offset, suspected=suspected
    )
    places = [Place(name, policy.topic.id, seq) for seq in found.seqs]
    items, last = await _items(context, key, places, base64=base64)
    below_next = found.next_below if last is None or last == found.seqs[-1] else last
    if found.matched is not None:
        return _page(items, found.matched, limit, offset, below_next)
    (counts,) = await jobs.statuses(context.pools.rest, [policy.topic])
    return _page(items, counts.of(status), limit, offset, below_next)


@router.get(
    "/api/messages/{id}",
    response_class=Response,
    openapi_extra=operation(parameters=[ID, ENCODING], answers={200: Message}, errors=[400, 401, 403, 404, 503]),
)
async def get(request: Request) -> Response:
    """A message, in whatever status; one that was acknowledged is gone."""
    context = context_of(request)
    key = context.access.check(request, Scope.READ, confines=True)
    base64 = _base64(request)
    message_id: str = request.path_params["id"]
    if message_id in VERBS:
        raise MethodNotAllowed(f"GET is not for {request.url.path}.")
    job = job_of(message_id)
    for later in (False, True):
        found = (await later_places(context, key, [job])).get(0) if later else await first_place(context, key, job)
        if found is None:
            continue
        policy, seq = found
        for item in await jobs.show(context.pools.rest, [Place(policy.topic.name, policy.topic.id, seq)]):
            return _json(shown(policy, as_seen(key, item.topic, item), base64=base64))
    raise no_message(message_id)


@router.get(
    "/api/stats",
    response_class=Response,
    openapi_extra=operation(answers={200: StatsAnswer}, errors=[401, 403, 503]),
)
async def stats(request: Request) -> Response:
    """How many messages there are, by topic and status."""
    context = context_of(request)
    context.access.check(request, Scope.ADMIN)
    allowed = context.access.prefixes(request, Scope.ADMIN)
    counted: list[TopicCount] = []
    async for policies in store.queues(
        context.pools.rest, TOPICS_AT_ONCE, defaults=context.policies.defaults, allowed=allowed
    ):
        queues = [policy.topic for policy in policies]
        for counts in sorted(await jobs.statuses(context.pools.rest, queues), key=lambda one: one.topic):
            for status in sorted(Status, key=lambda one: one.value):
                if counts.of(status) > 0:
                    counted.append(TopicCount(counts.topic, status.value, counts.of(status)))
    return _json(msgspec.json.encode(StatsAnswer(counted)))


async def _items(
    context: Context, key: Key | None, places: list[Place], *, base64: bool
) -> tuple[list[bytes], int | None]:
    """Those of them that there are, as far as their payloads fit into an answer, and the last one's seq."""
    items, last = [], None
    for item in await jobs.show(context.pools.rest, places):
        last = item.seq
        try:
            policy = await context.policies.queue(item.topic)
        except TopicNotFound:
            continue  # deleted at this moment
        items.append(shown(policy, as_seen(key, item.topic, item), base64=base64))
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
        raise InvalidRequest(f"offset must be 0 to {most}; next_cursor leads further in a topic.")


def _status(given: str | None) -> Status | None:
    try:
        return None if given is None else Status(given)
    except ValueError:
        raise InvalidRequest(f"status must be one of {', '.join(status.value for status in Status)}.") from None


def _suspected(given: str | None) -> bool:
    if given not in {None, "true", "false"}:
        raise InvalidRequest("suspected_poison must be true or false.")
    return given == "true"


def _base64(request: Request) -> bool:
    given = request.query_params.get("encoding")
    if given not in {None, "base64"}:
        raise InvalidRequest("encoding must be base64, if it is given.")
    return given is not None
