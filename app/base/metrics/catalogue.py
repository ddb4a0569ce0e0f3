"""All metrics: name, type, labels and help. A test checks docs/metrics.md against this list."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

PREFIX: Final = "holdfast_"

# Upper bounds of histograms: times of calls, times of jobs, numbers of jobs, numbers of deliveries.
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LONG_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0)
SIZES: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0)
DELIVERIES: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


class MetricType(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(Enum):
    """How gauges of several processes are merged. Counters and histograms are added."""

    SUM = "sum"
    MOST = "most"
    LEAST = "least"


class Family(msgspec.Struct, frozen=True):
    """A metric. `name` has no prefix and, for a counter, no `_total`. `bounds` are a histogram's, in the metric's unit;
    observed values are in `1 / scale` of that unit."""

    name: str
    kind: MetricType
    labels: tuple[str, ...]
    text: str
    bounds: tuple[float, ...] = ()
    scale: int = 1
    merge: Merge = Merge.SUM

    @property
    def exposed_name(self) -> str:
        """The name with prefix and suffix; a histogram's _bucket, _sum and _count are appended to it."""
        return PREFIX + self.name + ("_total" if self.kind is MetricType.COUNTER else "")


def _counter(name: str, labels: str, text: str) -> Family:
    return Family(name, MetricType.COUNTER, tuple(labels.split()), text)


def _gauge(name: str, labels: str, text: str, merge: Merge = Merge.SUM) -> Family:
    return Family(name, MetricType.GAUGE, tuple(labels.split()), text, merge=merge)


def _histogram(name: str, labels: str, text: str, bounds: tuple[float, ...], scale: int = 1) -> Family:
    return Family(name, MetricType.HISTOGRAM, tuple(labels.split()), text, bounds, scale)


# HTTP calls.
CALLS: Final = _counter("calls", "dialect verb code", "Calls that were answered; code is ok or the error's code.")
CALL_SECONDS: Final = _histogram(
    "call_seconds",
    "dialect verb",
    "Time from a call's arrival to the end of its answer, including refused calls.",
    SECONDS,
)
CALL_JOBS: Final = _histogram("call_jobs", "verb", "Jobs per call; for a claim, the jobs found.", SIZES)

# Group commit: calls that share a statement.
GROUP_CALLS: Final = _histogram("group_calls", "verb", "Calls per shared statement.", SIZES)
GROUP_JOBS: Final = _histogram("group_jobs", "verb", "Jobs per shared statement.", SIZES)
GROUP_WAITING: Final = _gauge("group_waiting", "verb", "Calls whose statement has not been sent yet.")

# The database.
STATEMENT_SECONDS: Final = _histogram(
    "statement_seconds",
    "statement",
    "Duration of a statement, without the wait for a connection.",
    SECONDS,
)
STATEMENT_ERRORS: Final = _counter(
    "statement_errors", "statement error", "Statements that failed, by asyncpg's exception class."
)
POOL_WAIT: Final = _histogram("pool_wait_seconds", "pool", "Time until a statement got a connection.", SECONDS)
POOL_WAITING: Final = _gauge("pool_waiting", "pool", "Statements waiting for a connection.")
POOL_CONNECTIONS: Final = _gauge("pool_connections", "pool state", "Open connections, busy or idle.")
POOL_MOST: Final = _gauge("pool_connections_max", "pool", "Connection limit of a pool.")
DATABASE_UP: Final = _gauge(
    "database_up", "", "1 if the database answered this scrape or within the last 5 s.", Merge.LEAST
)

# PostgreSQL, from its statistics views.
CONNECTIONS: Final = _gauge("database_connections", "", "Sessions of the server, in all databases.")
CONNECTIONS_MOST: Final = _gauge(
    "database_connections_max", "", "Limit of sessions for roles that are not superusers, of all services and tools."
)
LOCK_WAITS: Final = _gauge(
    "database_lock_waits", "", "Sessions waiting for a lock in this database, as far as the role can see them."
)
DATABASE_BYTES: Final = _gauge(
    "database_bytes", "", "Size of the database: tables and indexes, without the write-ahead log."
)
ID_AGE: Final = _gauge(
    "database_id_age", "kind", "Age of the oldest id that is not frozen, in any database: transaction, multixact."
)
TRANSACTIONS: Final = _counter("database_transactions", "outcome", "Transactions in this database, of all clients.")
DEADLOCKS: Final = _counter("database_deadlocks", "", "Deadlocks in this database.")
BLOCKS: Final = _counter(
    "database_blocks",
    "from",
    "Blocks of 8 KiB read: from PostgreSQL's cache, or from the system, which may have them cached.",
)
WAL: Final = _counter("database_wal_bytes", "", "Bytes of write-ahead log, of the whole server since its creation.")
WAL_ARCHIVE_FAILS: Final = _gauge(
    "database_wal_archive_failing",
    "",
    "1 if the last attempt to archive write-ahead log failed. Absent if archive_mode is off.",
)
SLOT_KEEPS: Final = _gauge(
    "database_slot_bytes", "slot", "Write-ahead log that a replication slot retains; the 20 largest slots."
)
STANDBY_BEHIND: Final = _gauge(
    "database_standby_behind_bytes",
    "standby",
    "Write-ahead log that a standby has not replayed. Absent if the role can't see it.",
)
HORIZON_AGE: Final = _gauge(
    "database_horizon_age_seconds",
    "holder",
    "How long the oldest holder of its kind has held back the removal of dead rows; 0: none. Absent if unknown.",
)
HORIZON_TRANSACTIONS: Final = _gauge(
    "database_horizon_transactions", "holder", "Transactions that began since the oldest holder of its kind; 0: none."
)
LIVE_ROWS: Final = _gauge("database_live_rows", "table", "Live rows, estimated by the server.")
DEAD_ROWS: Final = _gauge(
    "database_dead_rows", "table", "Dead rows that have not been removed, estimated by the server."
)

# Claims.
PASSES: Final = _counter(
    "claim_passes",
    "from full",
    "Claim statements: from the cursor, or from the low mark as a sweep; full: yes if it filled all slots.",
)
PASS_SECONDS: Final = _counter(
    "claim_pass_seconds", "from", "Duration of claim statements, including the wait for a connection."
)

# Waiting.
PARKED: Final = _gauge("waiters_parked", "", "Calls and streams waiting for jobs.")
STREAMS: Final = _gauge("streams_open", "", "Open work streams.")
STREAM_FRAMES: Final = _counter("stream_frames", "event", "Events sent on work streams: job, error, heartbeat.")
WATCHES: Final = _gauge("watches_open", "", "Open streams of watches.")
WATCH_FRAMES: Final = _counter(
    "watch_frames", "event", "Events sent on watches: record, tombstone, caught-up, topic-deleted, error, heartbeat."
)

# Ingestion, and users' events.
INGESTED: Final = _counter(
    "ingested", "type", "Jobs enqueued through /in: json, form, multipart, text, other; including duplicates."
)
USER_STREAMS: Final = _gauge("user_streams_open", "", "Open streams of users' events.")
PAGE_STREAMS: Final = _gauge("page_streams_open", "", "Open streams of admin pages.")
USER_EVENTS: Final = _counter(
    "user_events",
    "outcome",
    "Events for users: kept by this process; dropped because a job's end could not be stored; sent on streams.",
)

# Sweeps.
SWEEP_RUNS: Final = _counter("sweep_runs", "sweep outcome", "Background sweeps: ok or failed.")
SWEEP_MOVED: Final = _counter("sweep_moved", "sweep", "Rows that sweeps moved; for the sweep partitions, tables.")
SWEEP_SECONDS: Final = _counter("sweep_seconds", "sweep", "Duration of sweeps.")
SWEEP_LAST: Final = _gauge(
    "sweep_last_run_timestamp_seconds", "sweep", "When a sweep last succeeded, in s since 1970.", Merge.MOST
)

UNARCHIVED: Final = _gauge(
    "unarchived_days",
    "table",
    "Past days that are not in files yet. Absent if HOLDFAST_ARCHIVE_TO_FILES is not set.",
    Merge.MOST,
)

# Schedules.
SCHEDULE_FIRES: Final = _counter("schedule_fires", "outcome", "Jobs of schedules: fired, or refused, which is retried.")
SCHEDULE_LATE: Final = _histogram(
    "schedule_late_seconds",
    "",
    "Time from when a schedule was due to its job, including missed times.",
    LONG_SECONDS,
    1_000,
)

# Webhooks.
WEBHOOKS: Final = _counter(
    "webhooks",
    "outcome",
    "Requests to webhooks: delivered, refused, unreachable; gone, blocked and unsigned are not retried.",
)
WEBHOOK_SECONDS: Final = _histogram(
    "webhook_seconds", "", "Duration of answered requests to webhooks, whatever the answer.", SECONDS
)

# Topics' configurations, and hints between processes.
CONFIG_READS: Final = _counter(
    "config_reads",
    "tier outcome",
    "Lookups of a topic's configuration in the process, in Redis, in PostgreSQL: hit, miss; in Redis also failed, "
    "and skipped while it is unreachable.",
)
RELAY_HINTS: Final = _counter(
    "relay_hints", "outcome", "Hints to and from other workers of this service: sent, dropped, heard."
)

# Redis.
REDIS: Final = _gauge(
    "redis_connected", "", "1 if every process is connected to Redis. Absent without Redis.", Merge.LEAST
)
REDIS_CACHE: Final = _gauge(
    "redis_cache_usable", "", "1 if Redis answers every process in time. Absent without Redis.", Merge.LEAST
)
HINTS: Final = _counter("redis_hints", "outcome", "Hints to and from other processes: sent, dropped, heard.")

# The processes.
BUILD: Final = _gauge("build_info", "version python", "1.", Merge.MOST)
PROCESSES: Final = _gauge("processes", "", "Server processes in this scrape.")
START: Final = _gauge("process_start_time_seconds", "slot", "When a server process started, in s since 1970.")
UPTIME: Final = _gauge("process_uptime_seconds", "slot", "How long a server process has been running.")
RESIDENT: Final = _gauge("process_resident_memory_bytes", "slot", "Resident memory of a server process. Only on Linux.")
CPU: Final = _gauge("process_cpu_seconds", "slot", "CPU time of a server process since it started.")

# Topics: calls, counted by this service's processes.
TOPIC_ENQUEUED: Final = _counter("topic_enqueued", "topic", "Jobs enqueued.")
TOPIC_DUPLICATES: Final = _counter(
    "topic_duplicates",
    "topic",
    "Records that were not enqueued because they were duplicates, by dedupe id or idempotency key.",
)
TOPIC_REFUSED: Final = _counter("topic_refused", "topic", "Jobs refused because of max_depth or a queue's caps.")
TOPIC_UNFIT: Final = _counter(
    "topic_schema_violations",
    "topic",
    "Jobs and records refused because of the topic's schema, including the rest of their batch.",
)
TOPIC_THROTTLED: Final = _counter(
    "topic_throttled",
    "topic",
    "Claims that got fewer jobs than requested, or none, because of throughput_limit.",
)
TOPIC_APPENDED: Final = _counter("topic_appended", "topic", "Records appended to a log.")
TOPIC_READ: Final = _counter("topic_read", "topic", "Records and jobs sent to readers, including watches.")
TOPIC_CLAIMED: Final = _counter("topic_claimed", "topic", "Jobs claimed, that is deliveries.")
TOPIC_ACKED: Final = _counter("topic_acked", "topic", "Jobs completed.")
TOPIC_NACKED: Final = _counter("topic_nacked", "topic", "Jobs returned or failed by a nack or the end of a stream.")
TOPIC_EXTENDED: Final = _counter("topic_extended", "topic", "Leases extended.")
TOPIC_CANCELLED: Final = _counter("topic_cancelled", "topic", "Jobs that ended because they were cancelled.")
TOPIC_EXPIRED: Final = _counter("topic_expired", "topic", "Jobs that expired.")
TOPIC_EVICTED: Final = _counter("topic_evicted", "topic", "Jobs that a queue above its caps dropped, oldest first.")
TOPIC_FAILED: Final = _counter(
    "topic_failed", "topic", "Jobs that failed, or had no deliveries left, and stayed in the topic."
)
TOPIC_DEAD: Final = _counter(
    "topic_dead_lettered", "topic", "Jobs that failed, or had no deliveries left, and moved to the dead-letter topic."
)
TOPIC_REFUNDED: Final = _counter("topic_refunded", "topic", "Deliveries that were not counted (refunds).")
TOPIC_CRASHES: Final = _counter("topic_crashes", "topic", "Jobs claimed whose previous lease had expired.")
TOPIC_SUSPECTED: Final = _counter("topic_suspected_poison", "topic", "Jobs whose lease expired for the second time.")
TOPIC_WAIT: Final = _histogram(
    "topic_wait_seconds", "topic", "Time from when a job became ready to its claim.", LONG_SECONDS, 1_000_000
)
TOPIC_PROCESSING: Final = _histogram(
    "topic_processing_seconds", "topic", "Time from a job's last claim to its ack.", LONG_SECONDS, 1_000
)
TOPIC_DELIVERIES: Final = _histogram("topic_deliveries", "topic", "Deliveries of completed jobs.", DELIVERIES)

# Topics: counts from the database, at most 5 s old.
TOPICS: Final = _gauge("topics", "type durability", "Topics.")
TOPIC_READY: Final = _gauge("topic_ready", "topic", "Jobs that are ready now.")
TOPIC_IN_FLIGHT: Final = _gauge("topic_in_flight", "topic", "Jobs with a valid lease.")
TOPIC_SCHEDULED: Final = _gauge("topic_scheduled", "topic", "Scheduled jobs, which become ready later.")
TOPIC_BLOCKED: Final = _gauge("topic_blocked", "topic", "Jobs waiting for another job of their group.")
TOPIC_BYTES: Final = _gauge(
    "topic_bytes", "topic", "Bytes of the payloads of unfinished jobs; for a log, of data and meta."
)
TOPIC_DEAD_NOW: Final = _gauge(
    "topic_dead",
    "topic",
    "Failed jobs in the topic, plus up to 10000 of its dead letters in the dead-letter topic.",
)
TOPIC_TAKES_DEAD: Final = _gauge(
    "topic_takes_dead_letters", "topic", "1 for a queue that is another queue's dead-letter topic; absent for others."
)
TOPIC_RECORDS: Final = _gauge("topic_records", "topic", "Records of a log.")
TOPIC_HEAD: Final = _gauge("topic_head_seq", "topic", "The last assigned seq; 0: none.")
TOPIC_EARLIEST: Final = _gauge(
    "topic_earliest_seq",
    "topic",
    "The lowest live seq; head + 1 if there is none. Absent after many finished jobs.",
)
TOPIC_OLDEST: Final = _gauge(
    "topic_oldest_claimable_age_seconds",
    "topic",
    "How long the oldest ready job has been ready; 0: none.",
)
TOPIC_STUCK: Final = _gauge(
    "topic_stuck_groups",
    "topic",
    "Groups with jobs waiting behind one that has been leased or failing for longer than the topic's wait goal.",
)
TOPIC_WAIT_GOAL: Final = _gauge(
    "topic_wait_goal_seconds",
    "topic",
    "How long a queue's jobs may wait before it is late, from the setting wait_goal_ms; 0: never late.",
)
TOPIC_AGE: Final = _gauge("topic_gauges_age_seconds", "", "Age of the topics' gauges.")
TRUNCATED: Final = _gauge("topic_metrics_truncated", "", "1 if there are more topics than are listed separately.")


FAMILIES: Final = {family.name: family for family in list(globals().values()) if isinstance(family, Family)}
OF_TOPICS: Final = tuple(family for family in FAMILIES.values() if family.labels == ("topic",))
