"""One topic: what comes in and out, how long it takes, what fails."""

from __future__ import annotations

from panels import ORANGE, Threshold, dashboard, row, stat, timeseries
from queries import HELD, JOBS_HELD, OLDEST, TIMES, by_topic

PANELS = [
    row("Now"),
    *(
        stat(name.capitalize(), "short", (query, ""), about=about)
        for (query, name), about in zip(
            HELD,
            (
                "Could be claimed now.",
                "Under a good lease.",
                "Their time is yet to come.",
                "Wait for another of their group.",
            ),
            strict=True,
        )
    ),
    stat(
        "Oldest job waits",
        "s",
        (f"max({OLDEST})", ""),
        limits=[Threshold(300, ORANGE)],
        about="Since it could have been claimed.",
        alerts=["HoldfastJobsWait"],
    ),
    stat(
        "Dead letters",
        "short",
        ("max(holdfast_topic_dead)", ""),
        about="Failed and kept, and dead letters, up to 10,000 of those.",
        alerts=["HoldfastDeadLettersGrow"],
    ),
    row("Jobs"),
    timeseries("Jobs a second", "ops", *by_topic("enqueued", "claimed", "acked"), width=12),
    JOBS_HELD,
    *TIMES,
    timeseries(
        "Oldest job waits",
        "s",
        (f"max({OLDEST})", "oldest"),
        ('holdfast:wait_goal_seconds{topic="$topic"} or on () holdfast:wait_goal_seconds{topic=""}', "goal"),
        about="The goal is the topic's wait_goal_ms.",
        alerts=["HoldfastJobsWait", "HoldfastNobodyClaims"],
    ),
    timeseries(
        "Workers busy",
        "short",
        ("sum(rate(holdfast_topic_processing_seconds_sum[]))", "workers"),
        about="Jobs that were worked on at a time, by those that were completed.",
    ),
    timeseries(
        "Deliveries that a completed job took",
        "short",
        ("sum(rate(holdfast_topic_deliveries_sum[])) / sum(rate(holdfast_topic_deliveries_count[]))", "mean"),
    ),
    row("Trouble"),
    timeseries(
        "Deliveries that failed",
        "ops",
        *by_topic("nacked", "crashes", "suspected_poison", "refunded"),
        about="crashes: leases that ended in silence.",
        alerts=["HoldfastJobsFail", "HoldfastLeasesEnd", "HoldfastPoisonSuspected"],
    ),
    timeseries(
        "Jobs that ended undone",
        "ops",
        *by_topic("dead_lettered", "failed", "expired", "evicted", "cancelled"),
        alerts=["HoldfastDeadLettersGrow"],
    ),
    timeseries(
        "Jobs that did not get in",
        "ops",
        *by_topic("refused", "schema_violations", "duplicates"),
        about="refused: the queue holds as many as it may.",
        alerts=["HoldfastQueueFull"],
    ),
    timeseries("Claims that throughput_limit held back", "ops", *by_topic("throttled"), alerts=["HoldfastThrottled"]),
    timeseries(
        "Groups that don't move",
        "short",
        ("max(holdfast_topic_stuck_groups)", "stuck"),
        about="The job at their head has been leased or failing for longer than the topic's wait_goal_ms.",
        alerts=["HoldfastGroupsStuck"],
    ),
    timeseries("Leases extended", "ops", *by_topic("extended")),
    row("Data"),
    timeseries("Payloads", "bytes", ("max(holdfast_topic_bytes)", "held")),
    timeseries("Records of a log", "ops", *by_topic("appended", "read"), about="read: jobs that watches saw, too."),
    timeseries(
        "Seqs",
        "short",
        ("max(holdfast_topic_head_seq)", "last given"),
        ("max(holdfast_topic_earliest_seq)", "lowest that is live"),
        about="Where they draw apart, an old job is still there.",
    ),
]

BOARD = dashboard("topic", "Holdfast: topic", PANELS, by_topic=True)
