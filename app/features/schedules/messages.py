"""/api/schedules: messages that are enqueued when a cron expression is due."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from app.api.bounds import about
from app.api.messages.bodies import BatchMessage
from app.api.messages.enqueues import batch_of
from app.api.messages.show import time_of, unsent
from app.api.openapi import query
from app.api.route import Call
from app.edge.sight import WHY
from app.features.schedules import requests
from app.features.schedules.bodies import MissedPolicy, ScheduleError, When, error_of, page_of, put_when
from app.features.schedules.store import Schedule
from app.queue.ids import id_of

PAGE_SIZE = query("page_size", "1 to 1000, clamped.", {"type": "integer", "default": 100})


class MessagesScheduleBody(When, kw_only=True):
    """When to enqueue what into which topic."""

    message: Annotated[BatchMessage, about("The message, as an enqueue has it; without run_at.")]


class MessagesScheduleItem(msgspec.Struct, kw_only=True):
    """A schedule without its message; what it does not have is left out: next_fire while it is paused, and before the
    first message what is known of the last. `fires`: messages so far."""

    name: str
    topic: str
    cron: str
    time_zone: str
    missed: MissedPolicy
    paused: bool
    next_fire: str | UnsetType = UNSET
    last_fire: str | UnsetType = UNSET
    last_seq: int | UnsetType = UNSET
    fires: int
    last_error: ScheduleError | UnsetType = UNSET
    last_error_at: str | UnsetType = UNSET
    created_at: str
    updated_at: str


class MessagesSchedule(MessagesScheduleItem, kw_only=True):
    """A schedule, its message, and the next five times."""

    message: dict[str, Any] | UnsetType = UNSET
    hidden: Annotated[str | UnsetType, about("Why the message is not shown.")] = UNSET
    next_fires: list[str]


class MessagesSchedules(msgspec.Struct):
    """A page of schedules by name; `next_cursor` is absent on the last one."""

    items: list[MessagesScheduleItem]
    next_cursor: str | UnsetType = UNSET


class MessagesScheduleRun(msgspec.Struct):
    """The message's id, and the time in its metadata's $fire_at."""

    id: str
    fire_at: str


_OTHERS = {"tag", "node", "meta", "content_type", "delay_ms", "ttl_ms"}


async def page(call: Call) -> MessagesSchedules:
    """Schedules by name, a page at a time, without their messages."""
    found, more = await page_of(call)
    return MessagesSchedules([_item(one) for one in found], UNSET if more is None else more)


async def put(call: Call, body: MessagesScheduleBody) -> tuple[int, MessagesSchedule]:
    """Make a schedule, or replace one. It counts from now on; one whose cron and time zone stay keeps what is due."""
    kept, made = await put_when(call, body, batch_of(body.topic, body.message))
    return 201 if made else 200, _shown(kept)


async def get(call: Call) -> MessagesSchedule:
    """A schedule: what it enqueues, when it did last, and when it will."""
    return _shown(await requests.get(call))


async def delete(call: Call) -> None:
    """Delete a schedule. What it has enqueued stays."""
    await requests.delete(call)


async def pause(call: Call) -> MessagesSchedule:
    """Let a schedule rest. Times that go by meanwhile are not missed."""
    return _shown(await requests.pause(call, paused=True))


async def resume(call: Call) -> MessagesSchedule:
    """Let a schedule that rests go on, from now on."""
    return _shown(await requests.pause(call, paused=False))


async def run(call: Call) -> MessagesScheduleRun:
    """Enqueue a schedule's message now, paused or not. Its times stay as they are."""
    _, made = await requests.run(call)
    return MessagesScheduleRun(id_of(made.topic.id, made.seq), _time(made.time))


def _item(one: Schedule) -> MessagesScheduleItem:
    return MessagesScheduleItem(
        name=one.name,
        topic=one.topic,
        cron=one.cron,
        time_zone=one.time_zone,
        missed=one.missed.value,
        paused=one.paused,
        next_fire=UNSET if one.next_fire is None else _time(one.next_fire),
        last_fire=UNSET if one.last_fire is None else _time(one.last_fire),
        last_seq=UNSET if one.last_seq is None else one.last_seq,
        fires=one.fires,
        last_error=error_of(one) or UNSET,
        last_error_at=UNSET if one.error_at is None else _time(one.error_at),
        created_at=_time(one.created_at),
        updated_at=_time(one.updated_at),
    )


def _shown(one: Schedule) -> MessagesSchedule:
    item, next_fires = msgspec.structs.asdict(_item(one)), [_time(at) for at in requests.next_fires(one)]
    if one.hidden:
        return MessagesSchedule(**item, hidden=WHY, next_fires=next_fires)
    fields = requests.fields_of(one)
    metadata = bytes(fields["meta"]).decode() if "meta" in fields else None
    shown = unsent(*requests.payload_of(one), metadata)
    message: dict[str, Any] = msgspec.json.decode(shown, type=dict[str, msgspec.Raw])
    for name in ("delay", "ttl"):
        if f"{name}_ms" in fields:
            message[f"{name}_seconds"] = msgspec.json.decode(fields[f"{name}_ms"], type=int) / 1000
    message |= {name: value for name, value in fields.items() if name not in _OTHERS}
    return MessagesSchedule(**item, message=message, next_fires=next_fires)


def _time(at: datetime) -> str:
    return time_of(int(at.timestamp() * 1000)).decode()
