"""/api/topics/:topic/message-log and /replay: messages that were acknowledged, and enqueuing them again."""

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
from app.http.fields import cursor_of, cursor_to, time_of, whole
from app.http.messages.message import PurgeAnswer
from app.http.openapi import query
from app.http.route import Call
from app.http.sight import WHY, as_seen
from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.model import id_of
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import BIGINT_MAX

MOST_OFFSET: Final = 10_000  # each is read and skipped; messages before a cursor are not
COUNTED: Final = 10_000
BATCH: Final = 1_000


class ReplayBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which messages to replay."""

    from_time: Annotated[
        str | None,
        Meta(
            description="Messages acknowledged since this RFC 3339 time; null or absent: all in the replay window.",
            extra_json_schema={"format": "date-time"},
        ),
    ] = None


class ReplayAnswer(msgspec.Struct):
    """How many messages were enqueued again. `joined`: it continued a replay from the same time that was under way or
    had been cut off, and counts both as one. `skipped`: of each key, only the last message is enqueued, and none if one
    is pending. `until_time`: messages that were acknowledged later are not in it."""

    topic: str
    enqueued: int
    skipped: int
    from_time: datetime
    until_time: datetime
    joined: bool


class LoggedMessage(msgspec.Struct, omit_defaults=True):
    """A message that was acknowledged. `payload` is base64; `retry_count` its deliveries that ended without an ack."""

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
    """Acknowledged messages, the last first. `total` is exact below 10000, which means that many or more. `next_cursor`
    is absent on the last page. `replayable`: messages that are acknowledged now are kept."""

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
    "Messages to skip, after the cursor's place if there is a cursor.",
    {"type": "integer", "minimum": 0, "maximum": MOST_OFFSET, "default": 0},
)
BEFORE: Final = query(
    "before",
    "Messages that were acknowledged before this RFC 3339 time.",
    {"type": "string", "format": "date-time"},
    required=True,
)


async def replay(call: Call, body: ReplayBody) -> ReplayAnswer:
    """Enqueue messages again that were acknowledged since a time: as new messages, in the order of their acks. If a
    call is cut off, the messages that it has enqueued stay, and the same call within an hour continues there."""
    context, name = call.context, check_name(call.topic)
    from_time = None if body.from_time is None else _from_time(body.from_time)

    async def run(policy: Policy) -> Replay:
        if not policy.config.replayable:  # another process may have changed that
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
    """Messages of a replayable topic that were acknowledged within its replay window, the last acknowledged first."""
    check_name(call.topic)
    limit = min(max(whole(call.request.query_params, "limit", 50), 1), 200)
    offset = whole(call.request.query_params, "offset", 0)
    if not 0 <= offset <= MOST_OFFSET:
        raise InvalidRequest(f"offset must be 0 to {MOST_OFFSET}; further on, use cursor.")
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
    """Delete messages for good that were acknowledged before a time. They can't be replayed any more."""
    context, name = call.context, check_name(call.topic)
    given = call.request.query_params.get("before")
    if given is None:
        raise InvalidRequest("before is needed: up to which time is the log to be deleted?")
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
        raise InvalidRequest("cursor is not valid. Use next_cursor of the previous page.") from None
