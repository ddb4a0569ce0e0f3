"""Every metric: its name, type, labels and meaning. A test holds docs/metrics.md against this list."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

PREFIX: Final = "holdfast_"

# Upper bounds. What a caller waits for, what jobs wait for, how many jobs, how many deliveries.
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LONG_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0)
SIZES: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0)
DELIVERIES: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


class MetricType(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Merge(Enum):
    """What several processes' gauges of one name and labels make together. Counters and histograms add up."""

    SUM = "sum"
    MOST = "most"
    LEAST = "least"


class Family(msgspec.Struct, frozen=True):
    """A metric. `name` is without the prefix and, for a counter, without `_total`. `bounds` are a histogram's, in the
    metric's unit; what is observed is in `1 / scale` of that unit."""

    name: str
    kind: MetricType
    labels: tuple[str, ...]
    text: str
    bounds: tuple[float, ...] = ()
    scale: int = 1
    merge: Merge = Merge.SUM

    @property
    def exposed_name(self) -> str:
        """With prefix and suffix; a histogram's _bucket, _sum and _count begin with it."""
        return PREFIX + self.name + ("_total" if self.kind is MetricType.COUNTER else "")


def _counter(name: str, labels: str, text: str) -> Family:
    return Family(name, MetricType.COUNTER, tuple(labels.split()), text)


def _gauge(name: str, labels: str, text: str, merge: Merge = Merge.SUM) -> Family:
    return Family(name, MetricType.GAUGE, tuple(labels.split()), text, merge=merge)


def _histogram(name: str, labels: str, text: str, bounds: tuple[float, ...], scale: int = 1) -> Family:
    return Family(name, MetricType.HISTOGRAM, tuple(labels.split()), text, bounds, scale)


# Calls: what comes over HTTP.
CALLS: Final = _counter("calls", "dialect verb code", "Calls that were answered; code is ok or the error's code.")
CALL_SECONDS: Final = _histogram(
    "call_seconds", "dialect verb", "Time from a call's arrival to the end of its answer, refusals too.", SECONDS
)
CALL_JOBS: Final = _histogram("call_jobs", "verb", "Jobs of one call: those asked for; of a claim, those found.", SIZES)

# Group commit: calls that share a statement.
GROUP_CALLS: Final = _histogram("group_calls", "verb", "Calls that shared a statement.", SIZES)
GROUP_JOBS: Final = _histogram("group_jobs", "verb", "Jobs of one shared statement.", SIZES)
GROUP_WAITING: Final = _gauge("group_waiting", "verb", "Calls whose statement has not been sent.")

# The database.
STATEMENT_SECONDS: Final = _histogram(
    "statement_seconds",
    "statement",
    "Time of a statement by its name, without the wait for a connection.",
    SECONDS,
)
STATEMENT_ERRORS: Final = _counter("statement_errors", "statement error", "Statements that failed, by asyncpg's class.")
POOL_WAIT: Final = _histogram("pool_wait_seconds", "pool", "Time until a statement had its connection.", SECONDS)
POOL_WAITING: Final = _gauge("pool_waiting", "pool", "Statements that wait for a connection.")
POOL_CONNECTIONS: Final = _gauge("pool_connections", "pool state", "Connections that are open, busy or idle.")
POOL_MOST: Final = _gauge("pool_connections_max", "pool", "Connections that a pool may open.")
DATABASE_UP: Final = _gauge(
    "database_up", "", "1 if the database answered this scrape, or within the last 5 s.", Merge.LEAST
)

# PostgreSQL, by its own statistics views.
CONNECTIONS: Final = _gauge("database_connections", "", "Sessions of the server, in all its databases.")
CONNECTIONS_MOST: Final = _gauge(
    "database_connections_max", "", "Sessions that roles which are no superusers may have, of all services and tools."
)
LOCK_WAITS: Final = _gauge(
    "database_lock_waits", "", "Sessions that wait for a lock in this database, as far as the role may see them."
)
DATABASE_BYTES: Final = _gauge("database_bytes", "", "Size of the database: tables and indexes, without the log.")
ID_AGE: Final = _gauge(
    "database_id_age", "kind", "Ids since the oldest that is not frozen, in whichever database: transaction, multixact."
)
TRANSACTIONS: Final = _counter("database_transactions", "outcome", "Transactions in this database, of everybody.")
DEADLOCKS: Final = _counter("database_deadlocks", "", "Deadlocks in this database.")
BLOCKS: Final = _counter(
    "database_blocks", "from", "Blocks of 8 KiB read: from PostgreSQL's cache, or from the system, which may have them."
)
WAL: Final = _counter("database_wal_bytes", "", "Write-ahead log, of the whole server, ever.")
WAL_ARCHIVE_FAILS: Final = _gauge(
    "database_wal_archive_failing", "", "1 if the last try to archive log failed. Absent where archive_mode is off."
)
SLOT_KEEPS: Final = _gauge(
    "database_slot_bytes", "slot", "Log that a replication slot keeps; of the 20 that keep most."
)
STANDBY_BEHIND: Final = _gauge(
    "database_standby_behind_bytes",
    "standby",
    "Log that a standby has not replayed. Absent where the role may not see it.",
)
HORIZON_AGE: Final = _gauge(
    "database_horizon_age_seconds",
    "holder",
    "For how long the oldest of its kind holds back the removal of dead rows; 0: none. Absent where nobody can tell.",
)
HORIZON_TRANSACTIONS: Final = _gauge(
    "database_horizon_transactions", "holder", "Transactions that began since the oldest of its kind did; 0: none."
)
LIVE_ROWS: Final = _gauge("database_live_rows", "table", "Rows, as the server estimates them.")
DEAD_ROWS: Final = _gauge(
    "database_dead_rows", "table", "Dead rows that are not removed, as the server estimates them."
)

# Claims.
PASSES: Final = _counter(
    "claim_passes",
    "from full",
    "Claim statements: from the cursor or, as a sweep, from the low mark; full: all seats taken.",
)
PASS_SECONDS: Final = _counter("claim_pass_seconds", "from", "Time of claim statements, the wait for a connection too.")

# Waiting.
PARKED: Final = _gauge("waiters_parked", "", "Callers and streams that wait for work.")
STREAMS: Final = _gauge("streams_open", "", "Open work streams.")
STREAM_FRAMES: Final = _counter("stream_frames", "event", "Frames on work streams: job, error, heartbeat.")
WATCHES: Final = _gauge("watches_open", "", "Open streams of watches.")
WATCH_FRAMES: Final = _counter(
    "watch_frames", "event", "Frames on them: record, tombstone, caught-up, topic-deleted, error, heartbeat."
)

# Ingestion, and users' events.
INGESTED: Final = _counter("ingested", "type", "Jobs by /in: json, form, multipart, text, other; duplicates too.")
USER_STREAMS: Final = _gauge("user_streams_open", "", "Open streams of users' events.")
PAGE_STREAMS: Final = _gauge("page_streams_open", "", "Open streams of admin pages.")
USER_EVENTS: Final = _counter(
    "user_events",
    "outcome",
    "Events for users: kept, by this process; dropped, of jobs' ends that could not be kept; sent, on streams.",
)

# Sweeps.
SWEEP_RUNS: Final = _counter("sweep_runs", "sweep outcome", "Background sweeps: ok or failed.")
SWEEP_MOVED: Final = _counter("sweep_moved", "sweep", "Jobs (partitions: tables) that sweeps moved.")
SWEEP_SECONDS: Final = _counter("sweep_seconds", "sweep", "Time that sweeps took.")
SWEEP_LAST: Final = _gauge(
    "sweep_last_run_timestamp_seconds", "sweep", "When a sweep last succeeded, in s since 1970.", Merge.MOST
)

UNARCHIVED: Final = _gauge(
    "unarchived_days",
    "table",
    "Days that are over and not in files. Absent where HOLDFAST_ARCHIVE_TO_FILES is not set.",
    Merge.MOST,
)

# Schedules.
SCHEDULE_FIRES: Final = _counter(
    "schedule_fires", "outcome", "Jobs that schedules were to make: fired, or refused, which is tried again."
)
SCHEDULE_LATE: Final = _histogram(
    "schedule_late_seconds",
    "",
    "Time from when a schedule was due to its job; of missed times too.",
    LONG_SECONDS,
    1_000,
)

# Webhooks.
WEBHOOKS: Final = _counter(
    "webhooks",
    "outcome",
    "Requests to webhooks: delivered, refused, unreachable; gone, blocked and unsigned are not sent again.",
)
WEBHOOK_SECONDS: Final = _histogram(
    "webhook_seconds", "", "Time of a request to a webhook that was answered, whatever the answer.", SECONDS
)

# Topics' configurations, and what processes tell each other.
CONFIG_READS: Final = _counter(
    "config_reads",
    "tier outcome",
    "Looks for a topic's configuration in the process, in Redis, in PostgreSQL: hit, miss; in Redis also failed, and "
    "skipped while it is away.",
)
RELAY_HINTS: Final = _counter(
    "relay_hints", "outcome", "Hints to and from other workers of this service: sent, dropped, heard."
)

# Redis.
REDIS: Final = _gauge("redis_connected", "", "1 if every process hears Redis. Absent where none is set.", Merge.LEAST)
REDIS_CACHE: Final = _gauge(
    "redis_cache_usable", "", "1 if Redis answers every process in time. Absent where none is set.", Merge.LEAST
)
HINTS: Final = _counter("redis_hints", "outcome", "Hints to and from other processes: sent, dropped, heard.")

# The processes.
BUILD: Final = _gauge("build_info", "version python", "1.", Merge.MOST)
PROCESSES: Final = _gauge("processes", "", "Server processes that this scrape brings together.")
START: Final = _gauge("process_start_time_seconds", "slot", "When a server process started, in s since 1970.")
UPTIME: Final = _gauge("process_uptime_seconds", "slot", "For how long a server process has run.")
RESIDENT: Final = _gauge("process_resident_memory_bytes", "slot", "Memory of a server process. Absent outside Linux.")
CPU: Final = _gauge("process_cpu_seconds", "slot", "CPU time of a server process since it started.")

# Topics: verbs, by what this service's processes did.
TOPIC_ENQUEUED: Final = _counter("topic_enqueued", "topic", "Jobs enqueued.")
TOPIC_DUPLICATES: Final = _counter(
    "topic_duplicates", "topic", "Records that were not enqueued, since they were before: by dedupe id or batch's key."
)
TOPIC_REFUSED: Final = _counter("topic_refused", "topic", "Jobs that max_depth, or a queue's cap, refused.")
TOPIC_UNFIT: Final = _counter(
    "topic_schema_violations",
    "topic",
    "Jobs and records that did not fit the topic's schema, with the rest of their batch.",
)
TOPIC_THROTTLED: Final = _counter(
    "topic_throttled",
    "topic",
    "Looks for jobs that got fewer than they asked for, or none, for lack of throughput_limit's tokens.",
)
TOPIC_APPENDED: Final = _counter("topic_appended", "topic", "Records appended to a log.")
TOPIC_READ: Final = _counter("topic_read", "topic", "Records and jobs that readers were handed, watches too.")
TOPIC_CLAIMED: Final = _counter("topic_claimed", "topic", "Jobs claimed: deliveries.")
TOPIC_ACKED: Final = _counter("topic_acked", "topic", "Jobs completed.")
TOPIC_NACKED: Final = _counter("topic_nacked", "topic", "Jobs that went back, or out, by a nack or a stream's end.")
TOPIC_EXTENDED: Final = _counter("topic_extended", "topic", "Leases extended.")
TOPIC_CANCELLED: Final = _counter("topic_cancelled", "topic", "Jobs that ended as they were cancelled.")
TOPIC_EXPIRED: Final = _counter("topic_expired", "topic", "Jobs that outlived their time to live.")
TOPIC_EVICTED: Final = _counter("topic_evicted", "topic", "Jobs that a queue above its caps let go of, oldest first.")
TOPIC_FAILED: Final = _counter("topic_failed", "topic", "Jobs out of deliveries, or given up, that stayed as failed.")
TOPIC_DEAD: Final = _counter(
    "topic_dead_lettered", "topic", "Jobs out of deliveries, or given up, that moved to the dead-letter topic."
)
TOPIC_REFUNDED: Final = _counter("topic_refunded", "topic", "Deliveries that holders were given back.")
TOPIC_CRASHES: Final = _counter("topic_crashes", "topic", "Jobs claimed whose last delivery had ended by its deadline.")
TOPIC_SUSPECTED: Final = _counter(
    "topic_suspected_poison", "topic", "Jobs whose delivery ended by its deadline for the second time."
)
TOPIC_WAIT: Final = _histogram(
    "topic_wait_seconds", "topic", "Time from when a job could be claimed to its claim.", LONG_SECONDS, 1_000_000
)
TOPIC_PROCESSING: Final = _histogram(
    "topic_processing_seconds", "topic", "Time from a job's last claim to its ack.", LONG_SECONDS, 1_000
)
TOPIC_DELIVERIES: Final = _histogram("topic_deliveries", "topic", "Deliveries that a completed job took.", DELIVERIES)

# Topics: what they hold, by the database, at most 5 s old.
TOPICS: Final = _gauge("topics", "type durability", "Topics.")
TOPIC_READY: Final = _gauge("topic_ready", "topic", "Jobs that can be claimed now.")
TOPIC_IN_FLIGHT: Final = _gauge("topic_in_flight", "topic", "Jobs under a good lease.")
TOPIC_SCHEDULED: Final = _gauge("topic_scheduled", "topic", "Jobs whose time is yet to come.")
TOPIC_BLOCKED: Final = _gauge("topic_blocked", "topic", "Jobs that wait for another of their group.")
TOPIC_BYTES: Final = _gauge(
    "topic_bytes", "topic", "Payloads of jobs that are not finished, in bytes; of a log, data and meta."
)
TOPIC_DEAD_NOW: Final = _gauge(
    "topic_dead",
    "topic",
    "Failed jobs: those kept in the topic, and up to 10000 in its dead-letter topic that came from it.",
)
TOPIC_TAKES_DEAD: Final = _gauge(
    "topic_takes_dead_letters", "topic", "1 for a queue that another one names for its dead letters; absent for others."
)
TOPIC_RECORDS: Final = _gauge("topic_records", "topic", "Records of a log.")
TOPIC_HEAD: Final = _gauge("topic_head_seq", "topic", "The last seq that was given; 0: none.")
TOPIC_EARLIEST: Final = _gauge(
    "topic_earliest_seq",
    "topic",
    "The lowest seq that is live; one above the head: none. Absent behind many finished jobs.",
)
TOPIC_OLDEST: Final = _gauge(
    "topic_oldest_claimable_age_seconds",
    "topic",
    "For how long the oldest claimable job could have been claimed; 0: none.",
)
TOPIC_STUCK: Final = _gauge(
    "topic_stuck_groups",
    "topic",
    "Groups with jobs behind one that has been leased or failing for longer than the topic's goal.",
)
TOPIC_WAIT_GOAL: Final = _gauge(
    "topic_wait_goal_seconds",
    "topic",
    "How long a queue's jobs may wait before it is late, by its setting wait_goal_ms; 0: it never is.",
)
TOPIC_AGE: Final = _gauge("topic_gauges_age_seconds", "", "How old the topics' gauges are.")
TRUNCATED: Final = _gauge("topic_metrics_truncated", "", "1 if there are more topics than are shown one by one.")


FAMILIES: Final = {family.name: family for family in list(globals().values()) if isinstance(family, Family)}
OF_TOPICS: Final = tuple(family for family in FAMILIES.values() if family.labels == ("topic",))
