"""Results of jobs. docs/jobs.md."""

from __future__ import annotations

from typing import Final

from app.base.keys import Scope
from app.features.feature import Feature
from app.features.results import v0
from app.features.results.outcomes import Outcomes
from app.http.route import Route
from app.http.v0.dialect import V0

FEATURE: Final = Feature(
    "results",
    cores=[Outcomes],
    routes=[
        Route(
            "GET",
            "/v0/topics/{topic}/jobs/{seq}/result",
            v0.result,
            {200: v0.ResultAnswer},
            dialect=V0,
            scope=Scope.READ,
            parameters=v0.PARAMETERS,
            refuses=frozenset({409}),
        ),
    ],
)
