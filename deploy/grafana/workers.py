"""Workers: load, speed and failures."""

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
        about="Jobs processed concurrently, calculated from completed jobs.",
    ),
    stat(
        "Jobs in flight",
        "short",
        ("sum(max by (topic) (holdfast_topic_in_flight))", ""),
        about="Claimed, with a valid lease: being processed, or waiting in a worker.",
    ),
    stat(
        "Callers waiting for work",
        "short",
        ("sum(holdfast_waiters_parked)", ""),
        about="If 0 while jobs are ready: all workers are busy, or there are none.",
    ),
    stat("Work streams", "short", ("sum(holdfast_streams_open)", "")),
    stat(
        "Leases expired in 1 hour",
        "short",
        ("sum(increase(holdfast_topic_crashes_total[1h]))", ""),
        limits=[Threshold(5, ORANGE)],
        alerts=["HoldfastLeasesEnd"],
    ),
    stat(
        "Suspected poison jobs in 1 day",
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
            ("Jobs claimed per second", "claimed", ["HoldfastNobodyClaims"]),
            ("Jobs completed per second", "acked", []),
        )
    ),
    timeseries(
        "Workers busy",
        "short",
        ("topk(10, sum by (topic) (rate(holdfast_topic_processing_seconds_sum[])))", "{{topic}}"),
    ),
    timeseries("Jobs in flight", "short", ("topk(10, max by (topic) (holdfast_topic_in_flight))", "{{topic}}")),
    timeseries("Time from claim to ack, p99", "s", p99("holdfast_topic_processing_seconds", "topic")),
    timeseries(
        "Time until claimed, p99", "s", p99("holdfast_topic_wait_seconds", "topic"), alerts=["HoldfastJobsWait"]
    ),
    row("Failures"),
    timeseries(
        "Failed deliveries",
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
        "Expired leases",
        "ops",
        ("topk(10, sum by (topic) (rate(holdfast_topic_crashes_total[])))", "{{topic}}"),
        alerts=["HoldfastLeasesEnd"],
    ),
    timeseries(
        "Refunded deliveries",
        "ops",
        ("topk(10, sum by (topic) (rate(holdfast_topic_refunded_total[])))", "{{topic}}"),
        about="Returned by workers that stop or could not start the job.",
    ),
    timeseries(
        "Leases extended",
        "ops",
        ("topk(10, sum by (topic) (rate(holdfast_topic_extended_total[])))", "{{topic}}"),
        about="Jobs that take longer than their lease.",
    ),
    timeseries(
        "Claims throttled by throughput_limit",
        "ops",
        ("topk(10, sum by (topic) (rate(holdfast_topic_throttled_total[])))", "{{topic}}"),
        alerts=["HoldfastThrottled"],
    ),
    row("Claims"),
    timeseries(
        "Claims per second",
        "reqps",
        (f"sum(rate(holdfast_call_jobs_count{CLAIMS}[]))", "all"),
        ('sum(rate(holdfast_call_jobs_bucket{verb="claim", le="0.0"}[]))', "empty"),
    ),
    timeseries(
        "Jobs per claim",
        "short",
        (f"sum(rate(holdfast_call_jobs_sum{CLAIMS}[])) / sum(rate(holdfast_call_jobs_count{CLAIMS}[]))", "mean"),
    ),
    timeseries(
        "Claim duration",
        "s",
        *quantiles("holdfast_call_seconds", 'verb="claim"'),
        limits=[Threshold(1, ORANGE)],
        about="Without claims that wait.",
        alerts=["HoldfastCallsSlow"],
    ),
    timeseries(
        "Callers and streams waiting for work",
        "short",
        ("sum(holdfast_waiters_parked)", "all"),
        ("sum(holdfast_streams_open)", "work streams, including busy ones"),
    ),
    timeseries("Frames on work streams", "ops", ("sum by (event) (rate(holdfast_stream_frames_total[]))", "{{event}}")),
]

BOARD = dashboard("workers", "Holdfast: workers", PANELS)
