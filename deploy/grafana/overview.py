"""The state of the service: jobs, calls, background work, processes."""

from __future__ import annotations

from panels import ORANGE, RED, Threshold, dashboard, row, stat, table, timeseries
from queries import DATABASE, JOBS_HELD, OLDEST, TIMES, by_topic, p99, quantiles

FAILING = 'sum(rate(holdfast_calls_total{code=~"internal|not_ready"}[]))'

PANELS = [
    row("Now"),
    stat(
        "Instances up",
        "short",
        ('sum(up{job="$job"})', ""),
        good_from=1,
        alerts=["HoldfastDown", "HoldfastInstanceDown"],
    ),
    DATABASE,
    stat(
        "Alerts firing",
        "short",
        ('count(ALERTS{alertname=~"Holdfast.+", alertstate="firing"}) or vector(0)', ""),
        limits=[Threshold(1, RED)],
        about="Alerts of all jobs in this Prometheus. Alerting lists them.",
    ),
    stat(
        "Oldest job waits",
        "s",
        (f"max({OLDEST} unless on (job, topic) holdfast_topic_takes_dead_letters) or vector(0)", ""),
        limits=[Threshold(300, ORANGE)],
        about="Without dead letters.",
        alerts=["HoldfastJobsWait"],
    ),
    stat(
        "Dead letters",
        "short",
        ("sum(max by (topic) (holdfast_topic_dead))", ""),
        about="A dead letter queue that several topics share counts once for each.",
        alerts=["HoldfastDeadLettersGrow"],
    ),
    stat(
        "Failed calls",
        "percentunit",
        (f"({FAILING} or vector(0)) / sum(rate(holdfast_calls_total[]))", ""),
        limits=[Threshold(0.05, RED)],
        about="Answered with 500 or 503.",
        alerts=["HoldfastCallsFail"],
    ),
    row("Jobs"),
    timeseries(
        "Jobs per second",
        "ops",
        *by_topic("enqueued", "claimed", "acked", "nacked", "dead_lettered", "failed", "expired"),
        width=12,
    ),
    JOBS_HELD,
    *TIMES,
    table(
        "Topics",
        "topic",
        {
            "ready": ("max by (topic) (holdfast_topic_ready)", "short"),
            "in flight": ("max by (topic) (holdfast_topic_in_flight)", "short"),
            "oldest waits": ("max by (topic) (holdfast_topic_oldest_claimable_age_seconds)", "s"),
            "enqueued per second": ("sum by (topic) (rate(holdfast_topic_enqueued_total[]))", "ops"),
            "completed per second": ("sum by (topic) (rate(holdfast_topic_acked_total[]))", "ops"),
            "dead letters": ("max by (topic) (holdfast_topic_dead)", "short"),
        },
        sort="oldest waits",
        link="/d/holdfast-topic?var-topic=${__value.text}&var-job=${job}&${__url_time_range}",
    ),
    row("Calls"),
    timeseries("Calls per second", "reqps", ("sum by (verb) (rate(holdfast_calls_total[]))", "{{verb}}")),
    timeseries(
        "Call duration, p99",
        "s",
        p99("holdfast_call_seconds", "verb", 'verb!~".+_wait"'),
        limits=[Threshold(1, ORANGE)],
        about="Without calls that wait for work.",
        alerts=["HoldfastCallsSlow"],
    ),
    timeseries(
        "Calls that were not ok, by code",
        "reqps",
        ('sum by (code) (rate(holdfast_calls_total{code!="ok"}[]))', "{{code}}"),
        about="The codes' meanings: errors.html in the manual.",
        alerts=["HoldfastCallsTurnedAway", "HoldfastInternalErrors"],
    ),
    row("Background work"),
    timeseries(
        "Sweeps: time since the last success",
        "s",
        ('time() - max by (sweep) (holdfast_sweep_last_run_timestamp_seconds{sweep!="delete"})', "{{sweep}}"),
        about="Most run every minute, some every hour.",
        alerts=["HoldfastSweepsStand"],
    ),
    timeseries(
        "Failed sweeps",
        "ops",
        ('sum by (sweep) (rate(holdfast_sweep_runs_total{outcome="failed"}[]))', "{{sweep}}"),
        alerts=["HoldfastSweepFails"],
    ),
    timeseries(
        "Age of topic metrics",
        "s",
        ("max by (instance) (holdfast_topic_gauges_age_seconds)", "{{instance}}"),
        ("max(holdfast_topic_metrics_truncated)", "1: some topics have no metrics"),
        limits=[Threshold(180, ORANGE)],
        alerts=["HoldfastGaugesStale", "HoldfastTopicsNotShown"],
    ),
    timeseries(
        "Schedules",
        "ops",
        ("sum by (outcome) (rate(holdfast_schedule_fires_total[]))", "{{outcome}}"),
        alerts=["HoldfastSchedulesRefused"],
    ),
    timeseries(
        "Schedules: delay",
        "s",
        *quantiles("holdfast_schedule_late_seconds"),
        limits=[Threshold(60, ORANGE)],
        alerts=["HoldfastSchedulesLate"],
    ),
    timeseries(
        "Webhooks",
        "reqps",
        ("sum by (outcome) (rate(holdfast_webhooks_total[]))", "{{outcome}}"),
        alerts=["HoldfastWebhooksFail"],
    ),
    timeseries(
        "Redis",
        "short",
        ("min by (instance) (holdfast_redis_connected)", "{{instance}} connected"),
        ("min by (instance) (holdfast_redis_cache_usable)", "{{instance}} answers in time"),
        about="1: yes. Empty if Redis is not configured.",
        alerts=["HoldfastRedisAway"],
    ),
    timeseries(
        "Unarchived days",
        "short",
        ("max by (table) (holdfast_unarchived_days)", "{{table}}"),
        limits=[Threshold(3, ORANGE)],
        about="Empty if HOLDFAST_ARCHIVE_TO_FILES is not set.",
        alerts=["HoldfastArchiveBehind"],
    ),
    row("Processes"),
    timeseries(
        "Memory",
        "bytes",
        ("holdfast_process_resident_memory_bytes", "{{instance}} {{slot}}"),
        limits=[Threshold(800 * 1024**2, ORANGE)],
        alerts=["HoldfastMemory"],
    ),
    timeseries(
        "CPU",
        "percentunit",
        ("rate(holdfast_process_cpu_seconds[])", "{{instance}} {{slot}}"),
        about="Share of one core. A process uses at most one.",
    ),
    timeseries(
        "Uptime",
        "s",
        ("time() - holdfast_process_start_time_seconds", "{{instance}} {{slot}}"),
        alerts=["HoldfastRestarts"],
    ),
]

BOARD = dashboard("overview", "Holdfast: overview", PANELS)
