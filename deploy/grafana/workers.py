"""Who takes jobs: how busy, how fast, what they fail at."""

from __future__ import annotations

from panels import ORANGE, Threshold, dashboard, row, stat, timeseries
from queries import p99, quantiles

CLAIMS = '{verb="claim"}'
PANELS = [
    row("Now"),
    stat(
        "Workers busy",
        "short",
        ("sum(rate(holdfast_topic_processing_seconds_sum[]))", ""),
        about="Jobs that were worked on at a time, by those that were completed.",
    ),
    stat(
        "Jobs in flight",
        "short",
        ("sum(max by (topic) (holdfast_topic_in_flight))", ""),
        about="Claimed, and their lease is good: worked on, or kept by a worker.",
    ),
    stat(
        "Callers that wait for work",
        "short",
        ("sum(holdfast_waiters_parked)", ""),
        about="0 while jobs are ready: all workers are busy, or there are none.",
    ),
    stat("Work streams", "short", ("sum(holdfast_streams_open)", "")),
    stat(
        "Leases that ended in silence, in an hour",
        "short",
        ("sum(increase(holdfast_topic_crashes_total[1h]))", ""),
        limits=[Threshold(5, ORANGE)],
        alerts=["HoldfastLeasesEnd"],
    ),
    stat(
        "Jobs suspected of killing workers, in a day",
        "short",
        ("sum(increase(holdfast_topic_suspected_poison_total[1d]))", ""),
        limits=[Threshold(1, ORANGE)],
        alerts=["HoldfastPoisonSuspected"],
    ),
    row("Work"),
    *(
        timeseries(
            title,
            "ops",
            (f"topk(10, sum by (topic) (rate(holdfast_topic_{name}_total[])))", "{{topic}}"),
            alerts=alerts,
        )
        for title, name, alerts in (
            ("Jobs claimed a second", "claimed", ["HoldfastNobodyClaims"]),
            ("Jobs completed a second", "acked", []),
        )
    ),
    timeseries(
        "Workers busy",
        "short",
        ("topk(10, sum by (topic) (rate(holdfast_topic_processing_seconds_sum[])))", "{{topic}}"),
    ),
    timeseries("Jobs in flight", "short", ("topk(10, max by (topic) (holdfast_topic_in_flight))", "{{topic}}")),
    timeseries("Time from claim to ack, 99%", "s", p99("holdfast_topic_processing_seconds", "topic")),
    timeseries(
        "Time until claimed, 99%", "s", p99("holdfast_topic_wait_seconds", "topic"), alerts=["HoldfastJobsWait"]
    ),
    row("What goes wrong"),
    timeseries(
        "Deliveries that fail",
        "percentunit",
        (
            "topk(10, sum by (topic) (rate(holdfast_topic_nacked_total[])) / sum by (topic) ("
            "rate(holdfast_topic_nacked_total[]) + rate(holdfast_topic_acked_total[])))",
            "{{topic}}",
        ),
        limits=[Threshold(0.2, ORANGE)],
        alerts=["HoldfastJobsFail"],
    ),
    timeseries(
        "Leases that ended in silence",
        "ops",
        ("topk(10, sum by (topic) (rate(holdfast_topic_crashes_total[])))", "{{topic}}"),
        alerts=["HoldfastLeasesEnd"],
    ),
    timeseries(
        "Deliveries given back",
        "ops",
        ("topk(10, sum by (topic) (rate(holdfast_topic_refunded_total[])))", "{{topic}}"),
        about="By workers that stop, or could not begin.",
    ),
    timeseries(
        "Leases extended",
        "ops",
        ("topk(10, sum by (topic) (rate(holdfast_topic_extended_total[])))", "{{topic}}"),
        about="Work that takes longer than its lease.",
    ),
    timeseries(
        "Claims held back by throughput_limit",
        "ops",
        ("topk(10, sum by (topic) (rate(holdfast_topic_throttled_total[])))", "{{topic}}"),
        alerts=["HoldfastThrottled"],
    ),
    row("How they ask"),
    timeseries(
        "Claims a second",
        "reqps",
        (f"sum(rate(holdfast_call_jobs_count{CLAIMS}[]))", "all"),
        ('sum(rate(holdfast_call_jobs_bucket{verb="claim", le="0.0"}[]))', "that found nothing"),
    ),
    timeseries(
        "Jobs of one claim",
        "short",
        (f"sum(rate(holdfast_call_jobs_sum{CLAIMS}[])) / sum(rate(holdfast_call_jobs_count{CLAIMS}[]))", "mean"),
    ),
    timeseries(
        "Time of a claim",
        "s",
        *quantiles("holdfast_call_seconds", 'verb="claim"'),
        limits=[Threshold(1, ORANGE)],
        about="Without those that wait.",
        alerts=["HoldfastCallsSlow"],
    ),
    timeseries(
        "Callers and streams that wait for work",
        "short",
        ("sum(holdfast_waiters_parked)", "all"),
        ("sum(holdfast_streams_open)", "work streams, busy too"),
    ),
    timeseries("Frames on work streams", "ops", ("sum by (event) (rate(holdfast_stream_frames_total[]))", "{{event}}")),
]

BOARD = dashboard("workers", "Holdfast: workers", PANELS)
