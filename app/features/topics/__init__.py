"""Topics: create, configure, list, pause, drain and delete. With their admin pages."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.feature import Feature
from app.features.topics import config_page, list_page, messages, page, v0
from app.features.topics.messages import Decoder, TopicConfig, TopicConfigBody, TopicConfigs
from app.http.fields import CURSOR, PAGE_SIZE
from app.http.messages.dialect import MESSAGES
from app.http.route import Route
from app.http.v0.dialect import V0
from app.kernel.topics.policy import AskedInFull
from app.pages.frame import Menu, Page
from app.pages.permissions import CHANGE_JOBS, CONFIGURE, CONTROL, SEE

_v0 = partial(Route, dialect=V0)
_control = partial(_v0, scope=Scope.ADMIN, empty=b"{}", refuses=frozenset({409}))
_messages = partial(Route, dialect=MESSAGES, scope=Scope.ADMIN)
_TOPIC: Final = "/v0/topics/{topic}"
_CONFIG: Final = "/api/topic-configs/{topic}"
_CONFLICT: Final = frozenset({409})

FEATURE: Final = Feature(
    "topics",
    routes=[
        _v0(
            "PUT",
            _TOPIC,
            v0.put,
            dict.fromkeys((200, 201), v0.PutAnswer),
            scope=Scope.ADMIN,
            takes=AskedInFull,
            empty=b"{}",
            refuses=_CONFLICT,
            finds=False,
        ),
        _v0("GET", _TOPIC, v0.get, {200: v0.StateAnswer}, scope=Scope.READ, parameters=[v0.TOUCH]),
        _v0(
            "GET",
            "/v0/topics",
            v0.page,
            {200: v0.ListAnswer},
            scope=Scope.READ,
            parameters=[v0.PREFIX, PAGE_SIZE, CURSOR, v0.TOUCH_ALL],
        ),
        _v0(
            "DELETE",
            _TOPIC,
            v0.delete,
            {200: v0.DeleteAnswer},
            scope=Scope.DELETE,
            parameters=[v0.IF_EMPTY],
            refuses=_CONFLICT,
            finds=False,
        ),
        _control(
            "POST", f"{_TOPIC}/pause", v0.pause, {200: v0.ControlAnswer}, takes=v0.PauseBody, verb="controls_pause"
        ),
        _control(
            "POST", f"{_TOPIC}/resume", v0.resume, {200: v0.ControlAnswer}, takes=v0.PauseBody, verb="controls_resume"
        ),
        _control("POST", f"{_TOPIC}/drain", v0.drain, {200: v0.DrainAnswer}, takes=v0.DrainBody, verb="controls_drain"),
        _messages(
            "GET",
            "/api/topic-configs",
            messages.page,
            {200: TopicConfigs},
            parameters=[messages.PAGE_SIZE, CURSOR],
            verb="topic_configs_page",
        ),
        _messages("GET", _CONFIG, messages.get, {200: TopicConfig}, refuses=_CONFLICT, verb="topic_configs_get"),
        _messages(
            "PUT",
            _CONFIG,
            messages.put,
            {200: TopicConfig},
            takes=TopicConfigBody,
            decoder=Decoder(),
            refuses=_CONFLICT,
            finds=False,
            verb="topic_configs_put",
        ),
        _messages("DELETE", _CONFIG, messages.delete, {204: None}, refuses=_CONFLICT, verb="topic_configs_delete"),
    ],
    pages=[
        Page("GET", "/find", SEE, list_page.find),
        Page("GET", "/topics", SEE, list_page.show, Menu("Topics", 1, "t")),
        Page("GET", "/topics/{topic}", SEE, page.show, Menu("Overview", 0, logs=True)),
        Page("POST", "/first-job", CONFIGURE, page.send_first_job),
        Page("POST", "/topics/{topic}/test-job", CHANGE_JOBS, page.send_test_job),
        Page("POST", "/topics/{topic}/release", CHANGE_JOBS, page.take_back),
        Page("POST", "/topics/{topic}/pause", CONTROL, page.pause),
        Page("POST", "/topics/{topic}/resume", CONTROL, page.resume),
        Page("GET", "/topics/{topic}/config", SEE, config_page.show, Menu("Config", 3, logs=True)),
        Page("POST", "/topics/{topic}/config", CONFIGURE, config_page.review),
        Page("POST", "/topics/{topic}/config/save", CONFIGURE, config_page.save),
        Page("GET", "/topics/{topic}/config/undo/{entry}", CONFIGURE, config_page.undo),
    ],
)
