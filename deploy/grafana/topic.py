"""One topic: its throughput, times and failures."""

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
                "Claimable now.",
                "Claimed, with a valid lease.",
                "Not due yet.",
                "Waiting for another job of their group.",
            ),
            strict=True,
        )
    ),
    stat(
        "Oldest job waits",
        "s",
        (f"max({OLDEST})", ""),
        limits=[Threshold(300, ORANGE)],
        about="Since it became claimable.",
        alerts=["HoldfastJobsWait"],
    ),
    stat(
        "Dead letters",
        "short",
        ("max(holdfast_topic_dead)", ""),
        about="Failed jobs that are kept, and up to 10,000 dead letters.",
        alerts=["HoldfastDeadLettersGrow"],
    ),
    row("Jobs"),
    timeseries("Jobs per second", "ops", *by_topic("enqueued", "claimed", "acked"), width=12),
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
        about="Jobs processed concurrently, calculated from completed jobs.",
    ),
    timeseries(
        "Deliveries per completed job",
        "short",
        ("sum(rate(holdfast_topic_deliveries_sum[])) / sum(rate(holdfast_topic_deliveries_count[]))", "mean"),
    ),
    row("Failures"),
    timeseries(
        "Failed deliveries",
        "ops",
        *by_topic("nacked", "crashes", "suspected_poison", "refunded"),
        about="crashes: leases that expired.",
        alerts=["HoldfastJobsFail", "HoldfastLeasesEnd", "HoldfastPoisonSuspected"],
    ),
    timeseries(
        "Jobs that ended without success",
        "ops",
        *by_topic("dead_lettered", "failed", "expired", "evicted", "cancelled"),
        alerts=["HoldfastDeadLettersGrow"],
    ),
    timeseries(
        "Jobs not enqueued",
        "ops",
        *by_topic("refused", "schema_violations", "duplicates"),
        about="refused: the queue was full.",
        alerts=["HoldfastQueueFull"],
    ),
    timeseries("Claims throttled by throughput_limit", "ops", *by_topic("throttled"), alerts=["HoldfastThrottled"]),
    timeseries(
        "Stuck groups",
        "short",
        ("max(holdfast_topic_stuck_groups)", "stuck"),
        about="Their first job has been leased or failing for longer than the topic's wait_goal_ms.",
        alerts=["HoldfastGroupsStuck"],
    ),
    timeseries("Leases extended", "ops", *by_topic("extended")),
    row("Data"),
    timeseries("Payloads", "bytes", ("max(holdfast_topic_bytes)", "held")),
    timeseries("Log records", "ops", *by_topic("appended", "read"), about="read: includes jobs that watches received."),
    timeseries(
        "Seqs",
        "short",
        ("max(holdfast_topic_head_seq)", "last assigned"),
        ("max(holdfast_topic_earliest_seq)", "lowest live"),
        about="A growing gap means that an old job is still live.",
    ),
]

BOARD = dashboard("topic", "Holdfast: topic", PANELS, by_topic=True)
