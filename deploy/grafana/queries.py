"""Queries, and panels, that several dashboards have.

A metric of Holdfast gets the dashboard's filters, and [] is Grafana's window for rates. What services read of the
database is the same in all of them, hence max; what they count is theirs, hence sum.
"""

from __future__ import annotations

from panels import Query, stat, timeseries

OLDEST = "max by (job, topic) (holdfast_topic_oldest_claimable_age_seconds)"
HELD = [
    (f"sum(max by (topic) (holdfast_topic_{state}))", state.replace("_", " "))
    for state in ("ready", "in_flight", "scheduled", "blocked")
]


def quantiles(metric: str, which: str = "") -> list[Query]:
    """Of a histogram, over all its labels, or what `which` selects."""
    rates = f"rate({_buckets(metric, which)}[])"
    return [(f"histogram_quantile({q}, sum by (le) ({rates}))", f"{q:.0%}") for q in (0.5, 0.95, 0.99)]


def p99(metric: str, by: str, which: str = "") -> Query:
    """Of a histogram, for each value of a label; the ten that are largest, of those that `which` selects."""
    rates = f"rate({_buckets(metric, which)}[])"
    return f"topk(10, histogram_quantile(0.99, sum by ({by}, le) ({rates})))", f"{{{{{by}}}}}"


def _buckets(metric: str, which: str) -> str:
    return f"{metric}_bucket{{{which}}}" if which else f"{metric}_bucket"


def by_topic(*counters: str) -> list[Query]:
    """A second, of counters of topics."""
    return [(f"sum(rate(holdfast_topic_{name}_total[]))", name.replace("_", " ")) for name in counters]


DATABASE = stat(
    "Database",
    "short",
    ("min(holdfast_database_up)", ""),
    words={0: "away", 1: "answers"},
    good_from=1,
    alerts=["HoldfastDatabaseAway"],
)
JOBS_HELD = timeseries("Jobs held", "short", *HELD, width=12, stacked=True)
TIMES = [
    timeseries("Time until claimed", "s", *quantiles("holdfast_topic_wait_seconds"), width=12),
    timeseries("Time from claim to ack", "s", *quantiles("holdfast_topic_processing_seconds"), width=12),
]
