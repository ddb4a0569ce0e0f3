"""/api/admin/…-reaper: expired messages marked and deleted on demand, and when they are deleted by themselves."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from app.base.cron import MOST_LENGTH
from app.features.upkeep.reapers import MOST_WAIT_MS, Reapers
from app.features.upkeep.runner import RunOutcome
from app.features.upkeep.sweeps import DELETE, EXPIRY
from app.http.departure import while_connected
from app.http.route import Call


class RunBody(msgspec.Struct, forbid_unknown_fields=True):
    """How long the answer may take."""

    wait_seconds: Annotated[
        float,
        Meta(ge=0, le=MOST_WAIT_MS // 1000, description="How long to wait for the end of the run."),
    ] = MOST_WAIT_MS // 1000


class ReaperExpired(msgspec.Struct):
    """How many messages the run has marked as expired."""

    expired: int


class ReaperExpiredSoFar(ReaperExpired):
    """The same, so far: the run goes on."""

    running: bool = True


class ReaperDeleted(msgspec.Struct):
    """How many messages the run has deleted."""

    deleted: int


class ReaperDeletedSoFar(ReaperDeleted):
    """The same, so far: the run goes on."""

    running: bool = True


class ScheduleBody(msgspec.Struct, forbid_unknown_fields=True):
    """When expired messages are deleted."""

    schedule: Annotated[
        str,
        Meta(
            description="Cron of five fields (minute hour day month weekday), in UTC; empty: never.",
            extra_json_schema={"maxLength": MOST_LENGTH},
        ),
    ]


class ScheduleAnswer(msgspec.Struct):
    """When expired messages are deleted; `active`: whether that ever is."""

    schedule: str
    active: bool


async def run_expiry(call: Call, body: RunBody) -> tuple[int, ReaperExpired]:
    """Mark messages whose time to live has passed as expired. A run that is under way is joined."""
    outcome = await _run(call, EXPIRY.name, body)
    return (202, ReaperExpiredSoFar(outcome.moved)) if outcome.running else (200, ReaperExpired(outcome.moved))


async def run_delete(call: Call, body: RunBody) -> tuple[int, ReaperDeleted]:
    """Delete messages that were marked as expired. A run that is under way is joined."""
    return _deleted_by(await _run(call, DELETE.name, body))


async def run_archive(call: Call, body: RunBody) -> tuple[int, ReaperDeleted]:
    """Delete from message logs what is past its topic's replay window. A run that is under way is joined."""
    return _deleted_by(await _run(call, "archive", body))


async def get_schedule(call: Call) -> ScheduleAnswer:
    """When expired messages are deleted."""
    schedule = await call.context.core(Reapers).deletion.get()
    return ScheduleAnswer(schedule, schedule != "")


async def put_schedule(call: Call, body: ScheduleBody) -> ScheduleAnswer:
    """Say when expired messages are deleted, in every process; empty: never."""
    context = call.context
    schedule = await context.core(Reapers).deletion.set(body.schedule, context.access.actor(call.request))
    return ScheduleAnswer(schedule, schedule != "")


async def _run(call: Call, name: str, body: RunBody) -> RunOutcome:
    return await while_connected(call.request, call.context.core(Reapers).run(name, body.wait_seconds))


def _deleted_by(outcome: RunOutcome) -> tuple[int, ReaperDeleted]:
    return (202, ReaperDeletedSoFar(outcome.moved)) if outcome.running else (200, ReaperDeleted(outcome.moved))
