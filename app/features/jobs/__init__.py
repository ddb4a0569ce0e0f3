"""Jobs: list, show, change, cancel, requeue and release them, one at a time or many at once."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.feature import EASE, Feature, Sweep
from app.features.jobs import list_page, messages, operation_page, page, sweeps, v0, v0_changes
from app.features.jobs.requests import BegunAnswer
from app.http.fields import SEQ
from app.http.messages.dialect import MESSAGES
from app.http.messages.ids import ID
from app.http.messages.message import Message, PurgeAnswer
from app.http.route import Route
from app.http.v0.dialect import V0
from app.pages.frame import Menu, Page
from app.pages.permissions import CHANGE_JOBS, REQUEUE, SEE

_CONFLICT: Final = frozenset({409})
_v0 = partial(Route, dialect=V0, scope=Scope.READ, refuses=_CONFLICT)
_change = partial(Route, dialect=V0, scope=Scope.WRITE, refuses=_CONFLICT)
_messages = partial(Route, dialect=MESSAGES)
_TOPIC: Final = "/v0/topics/{topic}"

FEATURE: Final = Feature(
    "jobs",
    routes=[
        _change(
            "POST",
            f"{_TOPIC}/cancel",
            v0_changes.cancel,
            {200: v0_changes.CancelAnswer},
            takes=v0_changes.CancelBody,
            verb="cancels_cancel",
        ),
        _change(
            "POST",
            f"{_TOPIC}/operations",
            v0_changes.begin,
            dict.fromkeys((200, 202), BegunAnswer),
            takes=v0_changes.BeginBody,
            verb="cancels_begin",
        ),
        _change(
            "POST",
            f"{_TOPIC}/release",
            v0_changes.take_back,
            {200: v0_changes.ReleaseAnswer},
            takes=v0_changes.ReleaseBody,
            verb="releases_take_back",
        ),
        _v0("GET", f"{_TOPIC}/jobs", v0.page, {200: v0.JobsAnswer}, parameters=v0.OF_PAGES),
        _v0("GET", f"{_TOPIC}/jobs/{{seq}}", v0.show, {200: v0.JobAnswer}, parameters=[SEQ]),
        _change(
            "PATCH",
            f"{_TOPIC}/jobs/{{seq}}",
            v0_changes.change,
            {200: v0.JobAnswer},
            takes=v0_changes.ChangeBody,
            parameters=[SEQ],
            refuses=frozenset({409, 422}),
        ),
        _messages(
            "GET",
            "/api/messages",
            messages.page,
            {200: messages.MessagePage},
            scope=Scope.READ,
            parameters=messages.OF_PAGES,
            refuses=_CONFLICT,
            verb="lists_page",
        ),
        _messages(
            "GET",
            "/api/messages/{id}",
            messages.get,
            {200: Message},
            scope=Scope.READ,
            confines=True,
            parameters=[ID, messages.ENCODING],
            verb="lists_get",
        ),
        _messages(
            "GET", "/api/stats", messages.stats, {200: messages.StatsAnswer}, scope=Scope.ADMIN, verb="lists_stats"
        ),
        _messages(
            "DELETE",
            "/api/topics/{topic}/messages/by-key/{key:path}",
            messages.delete_by_key,
            {200: PurgeAnswer},
            scope=Scope.ADMIN,
            parameters=[messages.KEY],
            refuses=_CONFLICT,
            finds=False,
            verb="by_key_delete",
        ),
    ],
    sweeps=[
        Sweep("finished", sweeps.delete_ended, 3600, EASE, "deletes old failed and expired jobs and dead letters"),
        Sweep("requeues", sweeps.continue_operations, 20, moves="continues requeues whose process has died"),
    ],
    pages=[
        Page("GET", "/topics/{topic}/jobs", SEE, list_page.show, Menu("Jobs", 1)),
        Page("GET", "/topics/{topic}/jobs/cancel", CHANGE_JOBS, list_page.ask_cancel),
        Page("POST", "/topics/{topic}/jobs/cancel", CHANGE_JOBS, list_page.begin_cancel),
        Page("GET", "/topics/{topic}/jobs/operations/{id}", SEE, operation_page.show),
        Page("POST", "/topics/{topic}/jobs/operations/{id}/cancel", CHANGE_JOBS, operation_page.cancel),
        Page("GET", "/topics/{topic}/jobs/{seq}", SEE, page.show),
        Page("POST", "/topics/{topic}/jobs/{seq}/cancel", CHANGE_JOBS, page.cancel),
        Page("POST", "/topics/{topic}/jobs/{seq}/change", CHANGE_JOBS, page.change),
        Page("POST", "/topics/{topic}/jobs/{seq}/clone", CHANGE_JOBS, page.clone),
        Page("POST", "/topics/{topic}/jobs/{seq}/requeue", CHANGE_JOBS, page.requeue),
        Page("POST", "/topics/{topic}/jobs/{seq}/release", CHANGE_JOBS, page.take_back),
        Page("GET", "/topics/{topic}/dead/operations/{id}", SEE, operation_page.show),
        Page("POST", "/topics/{topic}/dead/operations/{id}/cancel", REQUEUE, operation_page.cancel),
    ],
)
