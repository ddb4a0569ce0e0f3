"""Explains why a job is not running, and shows what a queue looked like earlier. docs/explain.md.

explain.py finds the facts, reasons.py words them, store.py reads the tables.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.explain import page, v0
from app.features.feature import Feature
from app.http.fields import CURSOR, SEQ
from app.http.route import Route
from app.http.v0.dialect import V0
from app.pages.frame import Menu, Page
from app.pages.permissions import SEE

_get = partial(Route, "GET", dialect=V0, scope=Scope.READ, refuses=frozenset({409}))
_past = partial(_get, refuses=frozenset({409, 422}))
_JOB: Final = "/v0/topics/{topic}/jobs/{seq}"
_AS_OF: Final = "/v0/topics/{topic}/asof"

FEATURE: Final = Feature(
    "explain",
    routes=[
        _get(f"{_JOB}/explain", v0.explain_job, {200: v0.ExplainJobAnswer}, parameters=[SEQ]),
        _get(
            "/v0/topics/{topic}/explain",
            v0.explain_topic,
            {200: v0.ExplainTopicAnswer},
            parameters=[v0.GROUP, v0.TENANT],
        ),
        _past(_AS_OF, v0.as_of, {200: v0.AsOfAnswer}, parameters=[v0.AT]),
        _past(
            f"{_AS_OF}/jobs",
            v0.jobs_as_of,
            {200: v0.JobsThenAnswer},
            parameters=[v0.AT, v0.STATE, CURSOR, v0.JOBS_LIMIT],
        ),
        _get(f"{_JOB}/history", v0.history, {200: v0.HistoryAnswer}, parameters=[SEQ, v0.LIMIT]),
    ],
    pages=[Page("GET", "/topics/{topic}/asof", SEE, page.show, Menu("Time", 4))],
)
