"""Shows the audit trail."""

from __future__ import annotations

from typing import Final

from app.base.keys import Scope
from app.features.audit import page, v0
from app.features.feature import Feature
from app.http.route import Route
from app.http.v0.dialect import V0
from app.pages.frame import Menu, Page
from app.pages.permissions import SEE_RIGHTS

FEATURE: Final = Feature(
    "audit",
    routes=[
        Route(
            "GET",
            "/v0/admin/audit",
            v0.page,
            {200: v0.AuditAnswer},
            dialect=V0,
            scope=Scope.ADMIN,
            parameters=v0.PARAMETERS,
        )
    ],
    pages=[Page("GET", "/audit", SEE_RIGHTS, page.show, Menu("Audit", 8))],
)
