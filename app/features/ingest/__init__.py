"""Takes jobs from browsers and other services, in the form in which they send them. docs/webhooks.md."""

from __future__ import annotations

from typing import Final

from app.base.keys import Scope
from app.features.feature import Feature
from app.features.ingest.ingest import DEDUPE, DESCRIBED, GROUP, IngestAnswer, ingest
from app.http.dialect import PLAIN
from app.http.route import Route

FEATURE: Final = Feature(
    "ingest",
    routes=[
        Route(
            "POST",
            path,
            ingest,
            {202: IngestAnswer},
            dialect=PLAIN,
            scope=Scope.WRITE,
            own_check=True,
            hot=True,
            parameters=parameters,
            refuses=frozenset({409, 413, 415, 422, 429}),
            described={"operationId": name, **DESCRIBED},
        )
        for path, name, parameters in (
            ("/in/{topic}", "ingest", []),
            ("/in/{topic}/{group}", "ingest_grouped", [GROUP]),
            ("/in/{topic}/{group}/{dedupe}", "ingest_once", [GROUP, DEDUPE]),
        )
    ],
)
