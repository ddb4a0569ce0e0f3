"""/api/admin/…-reaper: run the expiry, delete and archive reapers, and schedule the delete reaper."""

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
    """How long to wait."""

    wait_seconds: Annotated[
        float,
        Meta(ge=0, le=MOST_WAIT_MS // 1000, description="How long to wait for the end of the run."),
    ] = MOST_WAIT_MS // 1000


class ExpiryReaperAnswer(msgspec.Struct):
    """The number of messages that the run has marked as expired."""

    expired: int


class ExpiryReaperProgress(ExpiryReaperAnswer):
    """The number of messages so far. The run continues."""

    running: bool = True


class DeleteReaperAnswer(msgspec.Struct):
    """The number of messages that the run has deleted."""

    deleted: int


class DeleteReaperProgress(DeleteReaperAnswer):
    """The number of messages so far. The run continues."""

    running: bool = True


class ScheduleBody(msgspec.Struct, forbid_unknown_fields=True):
    """The schedule of deleting expired messages."""

    schedule: Annotated[
        str,
        Meta(
            description="Five cron fields (minute hour day month weekday), in UTC. Empty: never.",
            extra_json_schema={"maxLength": MOST_LENGTH},
        ),
    ]


class ScheduleAnswer(msgspec.Struct):
    """The schedule of deleting expired messages. `active` is false for an empty schedule."""

    schedule: str
    active: bool


async def run_expiry(call: Call, body: RunBody) -> tuple[int, ExpiryReaperAnswer]:
    """Mark messages whose time to live has passed as expired. If a run is in progress, join it."""
    outcome = await _run(call, EXPIRY.name, body)
    answer = ExpiryReaperProgress if outcome.running else ExpiryReaperAnswer
    return 202 if outcome.running else 200, answer(outcome.moved)


async def run_delete(call: Call, body: RunBody) -> tuple[int, DeleteReaperAnswer]:
    """Delete messages that are marked as expired. If a run is in progress, join it."""
    return _deletion_answer(await _run(call, DELETE.name, body))


async def run_archive(call: Call, body: RunBody) -> tuple[int, DeleteReaperAnswer]:
    """Delete messages that are past their topic's replay window from message logs. If a run is in progress, join it."""
    return _deletion_answer(await _run(call, "archive", body))


async def get_schedule(call: Call) -> ScheduleAnswer:
    """Show the schedule of deleting expired messages."""
    schedule = await call.context.core(Reapers).deletion.get()
    return ScheduleAnswer(schedule, schedule != "")


async def put_schedule(call: Call, body: ScheduleBody) -> ScheduleAnswer:
    """Set the schedule of deleting expired messages, for all processes. Empty: never."""
    context = call.context
    schedule = await context.core(Reapers).deletion.set(body.schedule, context.access.actor(call.request))
    return ScheduleAnswer(schedule, schedule != "")


async def _run(call: Call, name: str, body: RunBody) -> RunOutcome:
    return await while_connected(call.request, call.context.core(Reapers).run(name, body.wait_seconds))


def _deletion_answer(outcome: RunOutcome) -> tuple[int, DeleteReaperAnswer]:
    answer = DeleteReaperProgress if outcome.running else DeleteReaperAnswer
    return 202 if outcome.running else 200, answer(outcome.moved)
