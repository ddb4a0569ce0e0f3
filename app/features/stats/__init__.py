"""Statistics of topics: the overview, the history, and the numbers to scale by."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.feature import EASE, Feature, Sweep
from app.features.stats import page, sweeps, v0
from app.features.stats.overview import Overview
from app.http.route import Route
from app.http.v0.dialect import V0
from app.pages.frame import Menu, Page
from app.pages.permissions import SEE

_v0 = partial(Route, dialect=V0, scope=Scope.READ)
_of_topic = partial(_v0, refuses=frozenset({409}))
_STATS: Final = "/v0/topics/{topic}/stats"

FEATURE: Final = Feature(
    "stats",
    cores=[Overview],
    sweeps=[
        Sweep("stats", sweeps.fill_minutes, 20, EASE, "counts the jobs of each minute by outcome"),
        Sweep("depths", sweeps.write_depths, 60, EASE, "samples the depths of queues"),
        Sweep("old_stats", sweeps.forget, 3600, EASE, "deletes statistics and depths after 31 days"),
    ],
    routes=[
        _of_topic(
            "GET",
            _STATS,
            v0.stats,
            {200: v0.TenantStatsAnswer},
            confines=True,
            parameters=v0.STATS_PARAMETERS,
            verb="stats",
        ),
        _of_topic("GET", "/v0/topics/{topic}/scale", v0.scale, {200: v0.ScaleAnswer}, verb="scale"),
        _of_topic(
            "GET",
            f"{_STATS}/history",
            v0.history,
            {200: v0.StatsHistoryAnswer},
            confines=True,
            parameters=v0.HISTORY_PARAMETERS,
            verb="stats_history_history",
        ),
        _v0(
            "GET",
            "/v0/overview",
            v0.overview,
            {200: v0.OverviewAnswer},
            parameters=v0.OVERVIEW_PARAMETERS,
            verb="overview",
        ),
    ],
    pages=[Page("GET", "/", SEE, page.show, Menu("Home", 0, "h"))],
)
