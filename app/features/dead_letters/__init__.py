"""Failed jobs and dead letters: lists them by kind of error, requeues them and purges them."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.dead_letters import forms, jobs_page, messages, page, v0
from app.features.dead_letters.failures import FailureReader
from app.features.dead_letters.requeues import RequeueBody
from app.features.feature import Feature
from app.http.messages.dialect import MESSAGES
from app.http.messages.ids import ID
from app.http.messages.message import PurgeAnswer
from app.http.route import Route
from app.http.v0.dialect import V0
from app.pages.frame import Menu, Page
from app.pages.permissions import PURGE, REQUEUE, SEE

_CONFLICT: Final = frozenset({409})
_TOPIC: Final = "/v0/topics/{topic}"
_OPERATION: Final = "/v0/operations/{id}"
_of_topic = partial(Route, dialect=V0, refuses=_CONFLICT)
_operation = partial(Route, dialect=V0, parameters=[v0.ID])
_messages = partial(Route, dialect=MESSAGES, scope=Scope.WRITE, refuses=_CONFLICT)

FEATURE: Final = Feature(
    "dead_letters",
    cores=[FailureReader],
    routes=[
        _of_topic(
            "POST", f"{_TOPIC}/requeue", v0.requeue, v0.COUNTS, scope=Scope.WRITE, takes=RequeueBody, verb="requeue"
        ),
        _of_topic(
            "GET",
            f"{_TOPIC}/operations",
            v0.of_topic,
            {200: v0.OperationsAnswer},
            scope=Scope.READ,
            verb="requeue_of_topic",
        ),
        _operation("GET", _OPERATION, v0.read, {200: v0.OperationAnswer}, scope=Scope.READ, verb="requeue_read"),
        _operation(
            "POST",
            f"{_OPERATION}/cancel",
            v0.cancel,
            {200: v0.OperationAnswer},
            scope=Scope.WRITE,
            verb="requeue_cancel",
        ),
        _of_topic(
            "GET",
            f"{_TOPIC}/failures",
            v0.failures,
            {200: v0.FailuresAnswer},
            scope=Scope.READ,
            parameters=[v0.LIMIT, v0.SINCE],
            verb="failures",
        ),
        _of_topic(
            "DELETE",
            f"{_TOPIC}/failures/{{cluster}}",
            v0.delete,
            {200: v0.ClusterDeletedAnswer},
            scope=Scope.DELETE,
            parameters=[v0.CLUSTER],
            verb="failures_delete",
        ),
        _messages("POST", "/api/messages/{id}/requeue", messages.requeue, {204: None}, parameters=[ID], verb="requeue"),
        _messages(
            "POST",
            "/api/topics/{topic}/requeue",
            messages.requeue_many,
            messages.COUNTS,
            takes=RequeueBody,
            verb="requeue_requeue_many",
        ),
        _messages(
            "POST",
            "/api/topics/{topic}/purge",
            messages.purge,
            {200: PurgeAnswer},
            scope=Scope.ADMIN,
            takes=messages.PurgeBody,
            empty=b"{}",
            finds=False,
            verb="purges_purge",
        ),
    ],
    pages=[
        Page("GET", "/topics/{topic}/dead", SEE, page.show, Menu("Failed", 2, failed=True)),
        Page("GET", "/topics/{topic}/dead/jobs", SEE, jobs_page.show),
        Page("GET", "/topics/{topic}/dead/requeue", REQUEUE, forms.ask_requeue),
        Page("POST", "/topics/{topic}/dead/requeue", REQUEUE, forms.requeue),
        Page("GET", "/topics/{topic}/dead/purge", PURGE, forms.ask_purge),
        Page("POST", "/topics/{topic}/dead/purge", PURGE, forms.purge),
    ],
)
