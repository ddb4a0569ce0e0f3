"""PostgreSQL as the service sees it, without an exporter."""

from __future__ import annotations

from panels import ORANGE, Threshold, dashboard, row, stat, timeseries
from queries import DATABASE, p99

CACHED = 'max(rate(holdfast_database_blocks_total{from="cache"}[]))'
DEAD = "max by (table) (holdfast_database_dead_rows)"
PANELS = [
    row("Now"),
    DATABASE,
    stat(
        "Connections in use",
        "percentunit",
        ("max(holdfast_database_connections) / max(holdfast_database_connections_max)", ""),
        limits=[Threshold(0.85, ORANGE)],
        alerts=["HoldfastConnectionsNearMax"],
    ),
    stat(
        "Size",
        "bytes",
        ("max(holdfast_database_bytes)", ""),
        about="Without WAL.",
        alerts=["HoldfastDatabaseFills"],
    ),
    stat(
        "Horizon age",
        "s",
        ("max(holdfast_database_horizon_age_seconds)", ""),
        limits=[Threshold(60, ORANGE)],
        about="Dead rows newer than the horizon can't be removed.",
        alerts=["HoldfastHorizonHeld"],
    ),
    stat("Dead rows", "short", (f"sum({DEAD})", ""), limits=[Threshold(200_000, ORANGE)], alerts=["HoldfastDeadRows"]),
    stat(
        "Age of the oldest unfrozen id",
        "short",
        ("max(holdfast_database_id_age)", ""),
        limits=[Threshold(1e9, ORANGE)],
        about="Near 2 billion, the server refuses writes.",
        alerts=["HoldfastIdsOld"],
    ),
    row("Statements of the service"),
    timeseries(
        "Statements per second",
        "ops",
        ("topk(10, sum by (statement) (rate(holdfast_statement_seconds_count[])))", "{{statement}}"),
    ),
    timeseries(
        "Statement duration, p99",
        "s",
        p99("holdfast_statement_seconds", "statement"),
        limits=[Threshold(0.5, ORANGE)],
        about="The alert covers claim, ack, nack and extend.",
        alerts=["HoldfastStatementsSlow"],
    ),
    timeseries(
        "Failed statements",
        "ops",
        ("sum by (statement, error) (rate(holdfast_statement_errors_total[]))", "{{statement}} {{error}}"),
        about="CancelledError: the caller disconnected.",
    ),
    timeseries(
        "Wait for a connection, p99",
        "s",
        p99("holdfast_pool_wait_seconds", "pool"),
        limits=[Threshold(0.25, ORANGE)],
        alerts=["HoldfastPoolsWait"],
    ),
    timeseries(
        "Pool connections in use",
        "percentunit",
        (
            'sum by (pool) (holdfast_pool_connections{state="busy"}) / sum by (pool) (holdfast_pool_connections_max)',
            "{{pool}}",
        ),
    ),
    timeseries(
        "Waiting statements",
        "short",
        ("sum by (pool) (holdfast_pool_waiting)", "{{pool}}: for a connection"),
        ("sum by (verb) (holdfast_group_waiting)", "{{verb}}: calls for their statement"),
    ),
    timeseries(
        "Jobs per statement",
        "short",
        (
            "sum by (verb) (rate(holdfast_group_jobs_sum[])) / sum by (verb) (rate(holdfast_group_jobs_count[]))",
            "{{verb}}",
        ),
        about="Calls that arrive while a statement runs share the next one.",
    ),
    timeseries(
        "Time of claims below the cursor",
        "percentunit",
        (
            '(sum(rate(holdfast_claim_pass_seconds_total{from="mark"}[])) or vector(0))'
            " / sum(rate(holdfast_claim_pass_seconds_total[]))",
            "share",
        ),
        about="Claims that scan from the proven low mark. If the share grows, a session holds an old snapshot.",
        alerts=["HoldfastHorizonHeld"],
    ),
    row("The server"),
    timeseries(
        "Transactions per second",
        "ops",
        ("max by (outcome) (rate(holdfast_database_transactions_total[]))", "{{outcome}}"),
    ),
    timeseries(
        "Connections",
        "short",
        ("max(holdfast_database_connections)", "in use"),
        ("max(holdfast_database_connections_max)", "max_connections"),
        alerts=["HoldfastConnectionsNearMax"],
    ),
    timeseries(
        "Locks",
        "short",
        ("max(holdfast_database_lock_waits)", "waiting sessions"),
        ("max(rate(holdfast_database_deadlocks_total[]))", "deadlocks per second"),
    ),
    timeseries(
        "Cache hits",
        "percentunit",
        (f'{CACHED} / ({CACHED} + max(rate(holdfast_database_blocks_total{{from="system"}}[])))', "share"),
    ),
    timeseries("WAL written", "Bps", ("max(rate(holdfast_database_wal_bytes_total[]))", "per second")),
    timeseries(
        "Size",
        "bytes",
        ("max(holdfast_database_bytes)", "now"),
        ("holdfast:database_goal_bytes", "limit"),
        alerts=["HoldfastDatabaseFills"],
    ),
    row("Dead rows and the horizon"),
    timeseries(
        "Dead rows",
        "short",
        (f"topk(8, {DEAD})", "{{table}}"),
        limits=[Threshold(200_000, ORANGE)],
        alerts=["HoldfastDeadRows"],
    ),
    timeseries("Live rows", "short", ("topk(8, max by (table) (holdfast_database_live_rows))", "{{table}}")),
    timeseries(
        "Horizon age",
        "s",
        ("max by (holder) (holdfast_database_horizon_age_seconds)", "{{holder}}"),
        limits=[Threshold(60, ORANGE)],
        about="The page Horizon of the admin pages shows who holds it.",
        alerts=["HoldfastHorizonHeld"],
    ),
    timeseries(
        "Horizon age, in transactions",
        "short",
        ("max by (holder) (holdfast_database_horizon_transactions)", "{{holder}}"),
        limits=[Threshold(100_000, ORANGE)],
        alerts=["HoldfastHorizonHeld"],
    ),
    timeseries(
        "Age of the oldest unfrozen id",
        "short",
        ("max by (kind) (holdfast_database_id_age)", "{{kind}}"),
        limits=[Threshold(1e9, ORANGE)],
        alerts=["HoldfastIdsOld"],
    ),
    row("Replication"),
    timeseries(
        "WAL retained by slots",
        "bytes",
        ("max by (slot) (holdfast_database_slot_bytes)", "{{slot}}"),
        limits=[Threshold(10 * 1024**3, ORANGE)],
        alerts=["HoldfastSlotKeepsLog"],
    ),
    timeseries(
        "Standby lag",
        "bytes",
        ("max by (standby) (holdfast_database_standby_behind_bytes)", "{{standby}}"),
        limits=[Threshold(1024**3, ORANGE)],
        alerts=["HoldfastStandbyBehind"],
    ),
    timeseries(
        "WAL archiving fails",
        "short",
        ("max(holdfast_database_wal_archive_failing)", "1: yes"),
        about="Empty if archive_mode is off.",
        alerts=["HoldfastLogNotArchived"],
    ),
]

BOARD = dashboard("postgresql", "Holdfast: PostgreSQL health", PANELS, page="horizon")
