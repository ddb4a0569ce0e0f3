"""Housekeeping by sweeps in bounded batches. They use SKIP LOCKED, so any number can run at once without a leader."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.feature import Feature, Sweep
from app.features.upkeep import messages, page, sweeps, v0
from app.features.upkeep.reapers import Reapers
from app.http.messages.dialect import MESSAGES
from app.http.route import Route
from app.http.v0.dialect import V0
from app.pages.frame import Menu, Page
from app.pages.permissions import REAP, SEE_SERVER

_v0 = partial(Route, dialect=V0, scope=Scope.ADMIN, server=True)
_messages = partial(Route, dialect=MESSAGES, scope=Scope.ADMIN, server=True)
_run = partial(_messages, takes=messages.RunBody, empty=b"{}")
_DELETION: Final = {200: messages.DeleteReaperAnswer, 202: messages.DeleteReaperProgress}
_SCHEDULE: Final = "/api/admin/delete-reaper/schedule"


def feature(all_sweeps: Sequence[Sweep]) -> Feature:
    """Build the feature that runs all sweeps, also those of other features."""
    named = partial(_v0, parameters=[v0.name_of(all_sweeps)])
    return Feature(
        "upkeep",
        cores=[Reapers],
        loops=lambda engine: [sweeps.groups(engine), sweeps.uses(engine)],
        routes=[
            _v0("GET", "/v0/admin/reapers", v0.page, {200: v0.ReapersAnswer}, verb="reapers_page"),
            named(
                "GET",
                "/v0/admin/reapers/{name}/runs",
                v0.earlier,
                {200: v0.ReaperRunsAnswer},
                verb="reapers_earlier",
            ),
            named(
                "POST",
                "/v0/admin/reapers/{name}/run",
                v0.run,
                dict.fromkeys((200, 202), v0.RunReaperAnswer),
                takes=v0.RunReaperBody,
                empty=b"{}",
                verb="reapers_run",
            ),
            _run(
                "POST",
                "/api/admin/expiry-reaper/run",
                messages.run_expiry,
                {200: messages.ExpiryReaperAnswer, 202: messages.ExpiryReaperProgress},
                verb="reapers_run_expiry",
            ),
            _run("POST", "/api/admin/delete-reaper/run", messages.run_delete, _DELETION, verb="reapers_run_delete"),
            _run("POST", "/api/admin/archive-reaper/run", messages.run_archive, _DELETION, verb="reapers_run_archive"),
            _messages(
                "GET", _SCHEDULE, messages.get_schedule, {200: messages.ScheduleAnswer}, verb="reapers_get_schedule"
            ),
            _messages(
                "PUT",
                _SCHEDULE,
                messages.put_schedule,
                {200: messages.ScheduleAnswer},
                takes=messages.ScheduleBody,
                refuses=frozenset({422}),
                verb="reapers_put_schedule",
            ),
        ],
        pages=[
            Page("GET", "/reapers", SEE_SERVER, page.show, Menu("Reapers", 4)),
            Page("GET", "/reapers/{name}", SEE_SERVER, page.earlier),
            Page("POST", "/reapers/{name}/run", REAP, page.run),
            Page("POST", "/reapers/delete/schedule", REAP, page.reschedule),
        ],
    )
