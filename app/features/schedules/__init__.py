"""Jobs that are made when a cron expression is due. docs/schedules.md.

changes.py has what callers change, fires.py what makes the jobs, store.py the rows, requests.py what both dialects
and the pages share.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from app.admin.frame import Page
from app.admin.permissions import SCHEDULE, SEE_SCHEDULES
from app.api.messages.dialect import MESSAGES
from app.api.paging import CURSOR, PAGE_SIZE
from app.api.route import Route
from app.api.v0.dialect import V0
from app.features.feature import Feature
from app.features.schedules import form, messages, page, v0
from app.features.schedules.bodies import NAME_IN_PATH, PREFIX
from app.features.schedules.changes import Schedules
from app.keys import Scope

_v0 = partial(Route, dialect=V0, scope=Scope.ADMIN, parameters=[NAME_IN_PATH])
_messages = partial(Route, dialect=MESSAGES, scope=Scope.ADMIN, parameters=[NAME_IN_PATH])
_MADE: Final = frozenset({409, 422})  # what making a schedule, or a job, may be refused with
_V0: Final = "/v0/schedules/{name}"
_MESSAGES: Final = "/api/schedules/{name}"

FEATURE: Final = Feature(
    "schedules",
    cores=[Schedules],
    loops=lambda engine: [engine.core(Schedules).loop],
    routes=[
        _v0("GET", "/v0/schedules", v0.page, {200: v0.TopicSchedules}, parameters=[PREFIX, PAGE_SIZE, CURSOR]),
        _v0("PUT", _V0, v0.put, dict.fromkeys((200, 201), v0.TopicSchedule), takes=v0.PutScheduleBody, refuses=_MADE),
        _v0("GET", _V0, v0.get, {200: v0.TopicSchedule}),
        _v0("DELETE", _V0, v0.delete, {200: v0.ScheduleDeleted}),
        _v0("POST", f"{_V0}/pause", v0.pause, {200: v0.TopicSchedule}),
        _v0("POST", f"{_V0}/resume", v0.resume, {200: v0.TopicSchedule}),
        _v0("POST", f"{_V0}/run", v0.run, {200: v0.ScheduleRun}, refuses=_MADE),
        _messages(
            "GET",
            "/api/schedules",
            messages.page,
            {200: messages.MessagesSchedules},
            parameters=[PREFIX, messages.PAGE_SIZE, CURSOR],
        ),
        _messages(
            "PUT",
            _MESSAGES,
            messages.put,
            dict.fromkeys((200, 201), messages.MessagesSchedule),
            takes=messages.MessagesScheduleBody,
            refuses=_MADE,
        ),
        _messages("GET", _MESSAGES, messages.get, {200: messages.MessagesSchedule}),
        _messages("DELETE", _MESSAGES, messages.delete, {204: None}),
        _messages("POST", f"{_MESSAGES}/pause", messages.pause, {200: messages.MessagesSchedule}),
        _messages("POST", f"{_MESSAGES}/resume", messages.resume, {200: messages.MessagesSchedule}),
        _messages("POST", f"{_MESSAGES}/run", messages.run, {200: messages.MessagesScheduleRun}, refuses=_MADE),
    ],
    pages=[
        Page("GET", "/schedules", SEE_SCHEDULES, page.show),
        Page("GET", "/schedules-new", SCHEDULE, form.ask),
        Page("POST", "/schedules-new", SCHEDULE, form.make),
        Page("GET", "/schedules/{name}", SEE_SCHEDULES, page.one),
        Page("POST", "/schedules/{name}/pause", SCHEDULE, page.pause),
        Page("POST", "/schedules/{name}/resume", SCHEDULE, page.resume),
        Page("POST", "/schedules/{name}/run", SCHEDULE, page.run),
        Page("POST", "/schedules/{name}/delete", SCHEDULE, page.delete),
        Page("GET", "/schedules/{name}/edit", SCHEDULE, form.edit),
        Page("POST", "/schedules/{name}/edit", SCHEDULE, form.change),
    ],
)
