"""Routes of topics' schemas."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.feature import Feature
from app.features.schemas import messages
from app.http.fields import CURSOR
from app.http.messages.dialect import MESSAGES
from app.http.route import Route

_route = partial(Route, dialect=MESSAGES, scope=Scope.ADMIN)
_PATH: Final = "/api/topic-schemas/{topic}"

FEATURE: Final = Feature(
    "topic_schemas",
    routes=[
        _route(
            "GET",
            "/api/topic-schemas",
            messages.page,
            {200: messages.TopicSchemas},
            parameters=[messages.PAGE_SIZE, CURSOR],
        ),
        _route("GET", _PATH, messages.get, {200: messages.TopicSchema}),
        _route("PUT", _PATH, messages.put, {200: messages.TopicSchema}, takes=messages.SchemaBody, finds=False),
        _route("DELETE", _PATH, messages.delete, {204: None}, finds=False),
    ],
)
