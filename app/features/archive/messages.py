"""/api/topics/:topic/message-log and /replay: list acknowledged messages, and enqueue them again."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from app.errors import InvalidRequest, InvalidTime
from app.features.archive import archive
from app.features.archive.archive import ArchivedJob, ArchivePart, ArchivePlace
from app.features.archive.replays import Replay, Replays
from app.http.bounds import about
from app.http.departure import while_connected
from app.http.fields import cursor_of, cursor_to, foreign_cursor, time_of, whole
from app.http.messages.message import PurgeAnswer
from app.http.openapi import query
from app.http.route import Call
from app.http.sight import WHY, as_seen
from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.model import id_of
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import BIGINT_MAX

MOST_OFFSET: Final = 10_000  # skipped messages are read; messages before a cursor are not
COUNTED: Final = 10_000
BATCH: Final = 1_000


class ReplayBody(msgspec.Struct, forbid_unknown_fields=True):
    """The messages to replay."""

    from_time: Annotated[
        str | None,
        Meta(
            description="Messages acknowledged since this RFC 3339 time. null or absent: all in the replay window.",
            extra_json_schema={"format": "date-time"},
        ),
    ] = None


class ReplayAnswer(msgspec.Struct):
    """The result of a replay. enqueued: messages enqueued again. skipped: messages not enqueued because a later message
    has the same key or a message with the key is pending. until_time: messages acknowledged later are not replayed.
    joined: the call continued a replay from the same time; the counts include both."""

    topic: str
    enqueued: int
    skipped: int
    from_time: datetime
    until_time: datetime
    joined: bool


class LoggedMessage(msgspec.Struct, omit_defaults=True):
    """An acknowledged message. payload: in base64. retry_count: deliveries that ended without an ack."""

    id: str
    topic: str
    retry_count: int
    created_at: datetime
    acked_at: datetime
    payload: str | None = None
    hidden: Annotated[str | None, about("Why payload is not shown.")] = None
    key: str | None = None
    original_topic: str | None = None


class LogAnswer(msgspec.Struct, omit_defaults=True):
    """Acknowledged messages, newest first. total: 10000 means 10000 or more. next_cursor: absent on the last page.
    replayable: whether messages that are acknowledged now are kept."""

    items: list[LoggedMessage]
    total: int
    limit: int
    offset: int
    replayable: bool
    next_cursor: str | None = None


class _Cursor(msgspec.Struct, forbid_unknown_fields=True):
    at: Annotated[datetime, Meta(tz=True)]
    seq: Annotated[int, Meta(ge=0, le=BIGINT_MAX)]


LIMIT: Final = query("limit", "1 to 200, clamped.", {"type": "integer", "default": 50})
OFFSET: Final = query(
    "offset",
    "Messages to skip, counted from the cursor if there is one.",
    {"type": "integer", "minimum": 0, "maximum": MOST_OFFSET, "default": 0},
)
BEFORE: Final = query(
    "before",
    "Delete messages acknowledged before this RFC 3339 time.",
    {"type": "string", "format": "date-time"},
    required=True,
)


async def replay(call: Call, body: ReplayBody) -> ReplayAnswer:
    """Enqueue acknowledged messages again as new messages, in the order of their acks. If a call is interrupted, the
    messages that it has enqueued stay. The same call within an hour continues the replay."""
    context, name = call.context, check_name(call.topic)
    from_time = None if body.from_time is None else _from_time(body.from_time)

    async def run(policy: Policy) -> Replay:
        if not policy.config.replayable:  # another process may have changed this
            context.policies.forget(name)
            policy = await context.policies.queue(name)
        return await context.core(Replays).replay(policy, from_time, record)

    async def record(replay: Replay) -> None:
        detail = {"from_time": replay.from_time.isoformat(), "until_time": replay.until_time.isoformat()}
        await trail.record(context.pools.rest, context.access.actor(call.request), Action.REPLAY_STARTED, name, detail)

    await context.policies.queue(name)
    done = await while_connected(call.request, context.policies.with_current(name, run))
    return ReplayAnswer(name, done.enqueued, done.skipped, done.from_time, done.until_time, done.joined)


async def message_log(call: Call) -> LogAnswer:
    """List the messages of a replayable topic that were acknowledged within its replay window, newest first."""
    check_name(call.topic)
    limit = min(max(whole(call.request.query_params, "limit", 50), 1), 200)
    offset = whole(call.request.query_params, "offset", 0)
    if not 0 <= offset <= MOST_OFFSET:
        raise InvalidRequest(f"offset must be 0 to {MOST_OFFSET}. To go further, use cursor.")
    place = cursor_of(call.request, _Cursor)
    before = None if place is None else ArchivePlace(_utc(place.at), place.seq)
    policy = await call.queue()
    topic, config, db = policy.topic, policy.config, call.context.pools.rest
    rows = await archive.page(db, topic, ArchivePart(config.replay_window_ms, before, offset), limit)
    total = await archive.count(db, topic, config.replay_window_ms, COUNTED)
    more = rows[-1] if rows and rows[-1].more else None
    return LogAnswer(
        [_message_of(policy, as_seen(call.key, call.topic, row)) for row in rows],
        total,
        limit,
        offset,
        config.replayable,
        None if more is None else cursor_to({"at": more.finished_at, "seq": more.seq}),
    )


async def purge_log(call: Call) -> PurgeAnswer:
    """Delete messages that were acknowledged before a time. They can't be replayed any more."""
    context, name = call.context, check_name(call.topic)
    given = call.request.query_params.get("before")
    if given is None:
        raise InvalidRequest("before is required: the time up to which to delete the log.")
    before = time_of(given, "before")
    topic, count = (await call.queue()).topic, 0
    actor = context.access.actor(call.request)
    await trail.record(context.pools.rest, actor, Action.LOG_PURGED, name, {"before": before.isoformat()})
    place = (topic.name, topic.id)
    while gone := await archive.delete(context.pools.rest, place, archive.THE_BEGINNING, before, BATCH):
        count += gone
    return PurgeAnswer(count)


def _message_of(policy: Policy, row: ArchivedJob) -> LoggedMessage:
    topic_id = policy.topic.id if row.first_topic_id is None else row.first_topic_id
    return LoggedMessage(
        id=id_of(topic_id, row.seq if row.first_seq is None else row.first_seq),
        topic=policy.topic.name,
        payload=None if row.hidden else base64.b64encode(row.payload).decode(),
        hidden=WHY if row.hidden else None,
        retry_count=row.deliveries - 1,
        created_at=row.created_at,
        acked_at=row.finished_at,
        key=row.key,
        original_topic=row.original_topic,
    )


def _from_time(text: str) -> datetime:
    try:
        return time_of(text, "from_time")
    except InvalidRequest as error:
        raise InvalidTime(error.message) from None


def _utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise foreign_cursor() from None
