"""Schedules: jobs enqueued by cron expressions. docs/schedules.md.

changes.py changes schedules, fires.py fires them, store.py reads and writes rows, requests.py serves routes and pages.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.feature import Feature
from app.features.schedules import page, v0
from app.features.schedules.changes import Schedules
from app.http.fields import CURSOR, PAGE_SIZE
from app.http.route import Route
from app.http.v0.dialect import V0
from app.pages.frame import Menu, Page
from app.pages.permissions import SCHEDULE, SEE_SCHEDULES

_v0 = partial(Route, dialect=V0, scope=Scope.ADMIN, parameters=[v0.NAME])
_MADE: Final = frozenset({409, 422})  # errors of creating a schedule or a job
_PATH: Final = "/v0/schedules/{name}"

FEATURE: Final = Feature(
    "schedules",
    cores=[Schedules],
    loops=lambda engine: [engine.core(Schedules).loop],
    routes=[
        _v0("GET", "/v0/schedules", v0.page, {200: v0.TopicSchedules}, parameters=[v0.PREFIX, PAGE_SIZE, CURSOR]),
        _v0("PUT", _PATH, v0.put, dict.fromkeys((200, 201), v0.TopicSchedule), takes=v0.PutScheduleBody, refuses=_MADE),
        _v0("GET", _PATH, v0.get, {200: v0.TopicSchedule}),
        _v0("DELETE", _PATH, v0.delete, {200: v0.ScheduleDeletion}),
        _v0("POST", f"{_PATH}/pause", v0.pause, {200: v0.TopicSchedule}),
        _v0("POST", f"{_PATH}/resume", v0.resume, {200: v0.TopicSchedule}),
        _v0("POST", f"{_PATH}/run", v0.run, {200: v0.ScheduleRun}, refuses=_MADE),
    ],
    pages=[
        Page("GET", "/schedules", SEE_SCHEDULES, page.show, Menu("Schedules", 2, "s")),
        Page("GET", "/schedules-new", SCHEDULE, page.ask_new),
        Page("POST", "/schedules-new", SCHEDULE, page.make_new),
        Page("GET", "/schedules/{name}", SEE_SCHEDULES, page.one),
        Page("POST", "/schedules/{name}/pause", SCHEDULE, page.pause),
        Page("POST", "/schedules/{name}/resume", SCHEDULE, page.resume),
        Page("POST", "/schedules/{name}/run", SCHEDULE, page.run),
        Page("POST", "/schedules/{name}/delete", SCHEDULE, page.delete),
        Page("GET", "/schedules/{name}/edit", SCHEDULE, page.edit),
        Page("POST", "/schedules/{name}/edit", SCHEDULE, page.change),
    ],
)
