"""Queries and panels that several dashboards use.

panels.py adds the dashboard's filters to each metric of Holdfast, and replaces [] by Grafana's rate window. What
services read from the database is equal in all of them, hence max. What they count is their own, hence sum.
"""

from __future__ import annotations

from panels import Query, stat, timeseries

OLDEST = "max by (job, topic) (holdfast_topic_oldest_claimable_age_seconds)"
HELD = [
    (f"sum(max by (topic) (holdfast_topic_{state}))", state.replace("_", " "))
    for state in ("ready", "in_flight", "scheduled", "blocked")
]


def quantiles(metric: str, which: str = "") -> list[Query]:
    """Quantiles of a histogram over all its series, or those that `which` selects."""
    rates = f"rate({_buckets(metric, which)}[])"
    return [(f"histogram_quantile({q}, sum by (le) ({rates}))", f"{q:.0%}") for q in (0.5, 0.95, 0.99)]


def p99(metric: str, by: str, which: str = "") -> Query:
    """The 99th percentile of a histogram for each value of the label `by`: the ten largest."""
    rates = f"rate({_buckets(metric, which)}[])"
    return f"topk(10, histogram_quantile(0.99, sum by ({by}, le) ({rates})))", f"{{{{{by}}}}}"


def _buckets(metric: str, which: str) -> str:
    return f"{metric}_bucket{{{which}}}" if which else f"{metric}_bucket"


def by_topic(*counters: str) -> list[Query]:
    """Rates per second of topics' counters."""
    return [(f"sum(rate(holdfast_topic_{name}_total[]))", name.replace("_", " ")) for name in counters]


DATABASE = stat(
    "Database",
    "short",
    ("min(holdfast_database_up)", ""),
    words={0: "down", 1: "up"},
    good_from=1,
    alerts=["HoldfastDatabaseAway"],
)
JOBS_HELD = timeseries("Jobs held", "short", *HELD, width=12, stacked=True)
TIMES = [
    timeseries("Time until claimed", "s", *quantiles("holdfast_topic_wait_seconds"), width=12),
    timeseries("Time from claim to ack", "s", *quantiles("holdfast_topic_processing_seconds"), width=12),
]
