"""How topics are doing: overview, history, what to scale by."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature, Sweep
from app.features.stats import depths, home_page, sweep, v0, v0_history, v0_overview, v0_scale
from app.pages.frame import Page
from app.pages.permissions import SEE

FEATURE: Final = Feature(
    "stats",
    sweeps=[
        Sweep("stats", sweep.fill, 20, 4.0, "counts what became of jobs, minute by minute"),
        Sweep("depths", depths.look, 60, 4.0, "writes down what queues hold, where it changes"),
        Sweep("old_stats", sweep.forget, 3600, 4.0, "forgets minutes and depths after 31 days"),
    ],
    routers=[v0.router, v0_scale.router, v0_history.router, v0_overview.router],
    pages=[
        Page("GET", "/", SEE, home_page.show),
    ],
)
