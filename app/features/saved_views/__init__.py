"""Saved views: named addresses of admin pages."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.feature import Feature
from app.features.saved_views import page, v0
from app.http.route import Route
from app.http.v0.dialect import V0
from app.pages.frame import Page
from app.pages.permissions import KEEP_VIEWS

_v0 = partial(Route, dialect=V0, scope=Scope.READ)

FEATURE: Final = Feature(
    "saved_views",
    routes=[
        _v0("GET", "/v0/views", v0.page, {200: v0.SavedViewsAnswer}),
        _v0(
            "PUT",
            "/v0/views/{name}",
            v0.put,
            {200: v0.SavedViewAnswer},
            takes=v0.SaveBody,
            parameters=[v0.NAME],
            refuses=frozenset({429}),
            finds=False,
        ),
        _v0("DELETE", "/v0/views/{name}", v0.delete, {200: v0.SavedViewAnswer}, parameters=[v0.NAME]),
    ],
    pages=[
        Page("POST", "/views", KEEP_VIEWS, page.save),
        Page("POST", "/views/delete", KEEP_VIEWS, page.delete),
    ],
)
