"""Shows which sessions, slots and standbys keep PostgreSQL from removing dead rows."""

from __future__ import annotations

from typing import Final

from app.base.keys import Scope
from app.features.database import page
from app.features.feature import Feature
from app.http.route import Route
from app.http.v0.dialect import V0
from app.pages.frame import Menu, Page
from app.pages.permissions import SEE_SERVER

FEATURE: Final = Feature(
    "database",
    routes=[
        Route(
            "GET",
            "/v0/admin/horizon",
            page.get_horizon,
            {200: page.HorizonAnswer},
            dialect=V0,
            scope=Scope.ADMIN,
            server=True,
            verb="admin_get_horizon",
        )
    ],
    pages=[Page("GET", "/horizon", SEE_SERVER, page.show, Menu("Horizon", 3))],
)
