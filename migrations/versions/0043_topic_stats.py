"""What became of each topic's jobs, minute by minute; and events say whose job it was and how long it took.

Revision ID: 0043
"""

from alembic import op
from sqlalchemy import Connection, text

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

# `began_at`: when what an event ends had begun: of a claim, since when the job could have been had; of what a holder
# ended, when it was claimed.
# `tenant`: NULL is the default tenant. Both take no room where they are NULL, and the ledger says for itself how long
# everything took: else a minute could only be told by looking for each job's earlier events (ADR 0048).
COLUMNS = """
    ALTER TABLE holdfast.lease_events ADD COLUMN began_at timestamptz, ADD COLUMN tenant text COLLATE "C"
"""
# The functions that write those events say it too. What is put in is the same whatever else has become of a function.
PATCHES = {
    "complete": [
        (
            "lease_id, node, until)\n        VALUES (job.topic, job.topic_id, job.seq, 'acked', job.deliveries, "
            "job.lease_id, job.node, expires)",
            "lease_id, node, until, began_at,\n                                           tenant)\n        "
            "VALUES (job.topic, job.topic_id, job.seq, 'acked', job.deliveries, job.lease_id, job.node, expires,\n"
            "                job.leased_at, nullif(job.tenant, ''))",
        )
    ],
    "enqueue_plain": [
        (
            "deliveries, node, until)\n            SELECT $1, $2, r.seq, 'enqueued', 0, r.producer,",
            "deliveries, node, tenant, until)\n            SELECT $1, $2, r.seq, 'enqueued', 0, r.producer, "
            "nullif(r.tenant, ''),",
        )
    ],
    "enqueue_keyed": [
        (
            "deliveries, node, until, detail)\n                    VALUES (of_topic, of_id, drawn[r.ord], 'enqueued', "
            "0, r.producer, starts,",
            "deliveries, node, tenant, until, detail)\n                    VALUES (of_topic, of_id, drawn[r.ord], "
            "'enqueued', 0, r.producer, nullif(r.tenant, ''), starts,",
        )
    ],
    "take_inbox": [
        (
            "RETURNING seq, state, visible_at, producer, octet_length(payload) AS size",
            "RETURNING seq, state, visible_at, producer, tenant, octet_length(payload) AS size",
        ),
        (
            "deliveries, node, until)\n                    SELECT g.topic, t.id, j.seq, 'enqueued', 0, j.producer,",
            "deliveries, node, tenant,\n                                                       until)\n"
            "                    SELECT g.topic, t.id, j.seq, 'enqueued', 0, j.producer, nullif(j.tenant, ''),",
        ),
    ],
    "nack_keyed": [
        (
            "lease_id, node, until,\n                                                       detail)\n"
            "                    VALUES (of_topic, id, job.seq, 'released', job.deliveries, lease, holder,\n"
            "                            job.visible_at, r.error)",
            "lease_id, node, until,\n                                                       detail, began_at, tenant)\n"
            "                    VALUES (of_topic, id, job.seq, 'released', job.deliveries, lease, holder,\n"
            "                            job.visible_at, r.error, job.leased_at, nullif(job.tenant, ''))",
        )
    ],
}

COUNTS = ("enqueued", "completed", "failed", "retried", "dead_lettered", "expired", "cancelled")
TIMES = tuple(
    f"{what}_{part}"
    for what in ("wait", "processing")
    for part in ("count", "p50_ms", "p95_ms", "p99_ms", "buckets", "counts")
)
NOTHING = {"buckets": "'{}'", "counts": "'{}'", "p50_ms": "NULL", "p95_ms": "NULL", "p99_ms": "NULL"}


def merge(name: str, columns: tuple[str, ...]) -> str:
    """A function that puts what was staged in the place of what topic_stats has in these columns."""
    nothing = {column: next((v for k, v in NOTHING.items() if column.endswith(k)), "0") for column in columns}
    own, given = (", ".join(f"{table}.{column}" for column in columns) for table in ("t", "excluded"))
    none = ", ".join(nothing.values())
    return f"""
    CREATE FUNCTION holdfast.merge_{name}(of_run uuid, since timestamptz, before timestamptz, of_topic text,
                                          expected bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'on'
    SET enable_hashjoin TO 'on'
    SET enable_hashagg TO 'on'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
    DECLARE
        told_to timestamptz;
        staged bigint;
        put bigint;
        cleared bigint;
    BEGIN
        SELECT p.filled_to INTO told_to FROM holdfast.topic_stats_progress p FOR UPDATE;
        IF before > told_to THEN
            RAISE EXCEPTION 'minutes from % on are still being told', told_to USING ERRCODE = 'object_in_use';
        END IF;
        SELECT count(DISTINCT (s.topic_id, s.minute, s.tenant)) INTO staged FROM holdfast.topic_stats_staged s
        WHERE s.run = of_run AND s.minute >= since AND s.minute < before;
        IF staged <> expected THEN
            RAISE EXCEPTION '% rows are staged, and % were to be', staged, expected USING ERRCODE = 'data_exception';
        END IF;
        INSERT INTO holdfast.topic_stats AS t (minute, topic_id, topic, tenant, {", ".join(columns)})
        SELECT DISTINCT ON (s.topic_id, s.minute, s.tenant)  -- a task that ran again has staged its rows again
               s.minute, s.topic_id, s.topic, s.tenant, {", ".join(f"s.{column}" for column in columns)}
        FROM holdfast.topic_stats_staged s WHERE s.run = of_run
        ORDER BY s.topic_id, s.minute, s.tenant
        ON CONFLICT (topic_id, minute, tenant) DO UPDATE
        SET {", ".join(f"{column} = excluded.{column}" for column in columns)}
        WHERE ({own}) IS DISTINCT FROM ({given});
        GET DIAGNOSTICS put = ROW_COUNT;
        UPDATE holdfast.topic_stats t SET {", ".join(f"{column} = {value}" for column, value in nothing.items())}
        WHERE t.minute >= since AND t.minute < before AND (of_topic IS NULL OR t.topic = of_topic)
          AND ({own}) IS DISTINCT FROM ({none})
          AND NOT EXISTS (
              SELECT FROM holdfast.topic_stats_staged s
              WHERE s.run = of_run AND s.topic_id = t.topic_id AND s.minute = t.minute AND s.tenant = t.tenant
          );
        GET DIAGNOSTICS cleared = ROW_COUNT;
        DELETE FROM holdfast.topic_stats t
        WHERE t.minute >= since AND t.minute < before AND (of_topic IS NULL OR t.topic = of_topic)
          AND ({", ".join(f"t.{column}" for column in COUNTS)}, t.wait_count, t.processing_count)
              = ({", ".join("0" for _ in COUNTS)}, 0, 0);
        DELETE FROM holdfast.topic_stats_staged s WHERE s.run = of_run;
        RETURN put + cleared;
    END $$
    """


UP = [
    COLUMNS,
    # A row where anything was. Times in whole ms; percentiles by nearest rank, NULL where there was none; the same
    # times in buckets, so that those of an hour can be told: of each bucket that has any, how many.
    """
    CREATE TABLE holdfast.topic_stats (
        minute timestamptz NOT NULL,
        topic_id integer NOT NULL,
        topic text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        enqueued bigint NOT NULL DEFAULT 0,
        completed bigint NOT NULL DEFAULT 0,
        failed bigint NOT NULL DEFAULT 0,
        retried bigint NOT NULL DEFAULT 0,
        dead_lettered bigint NOT NULL DEFAULT 0,
        expired bigint NOT NULL DEFAULT 0,
        cancelled bigint NOT NULL DEFAULT 0,
        wait_count bigint NOT NULL DEFAULT 0,
        wait_p50_ms bigint,
        wait_p95_ms bigint,
        wait_p99_ms bigint,
        wait_buckets integer[] NOT NULL DEFAULT '{}',
        wait_counts bigint[] NOT NULL DEFAULT '{}',
        processing_count bigint NOT NULL DEFAULT 0,
        processing_p50_ms bigint,
        processing_p95_ms bigint,
        processing_p99_ms bigint,
        processing_buckets integer[] NOT NULL DEFAULT '{}',
        processing_counts bigint[] NOT NULL DEFAULT '{}',
        PRIMARY KEY (topic_id, minute, tenant)
    )
    """,
    # How far they are told, one row. Before filled_to everything was counted. mark: transactions from this one on began
    # after marked_at, so when all before it have ended, nothing older can appear. Up to guessed_to minutes were counted
    # while an older transaction was open, and are counted once more.
    """
    CREATE TABLE holdfast.topic_stats_progress (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        filled_to timestamptz NOT NULL,
        guessed_to timestamptz NOT NULL,
        marked_at timestamptz NOT NULL,
        mark xid8 NOT NULL
    ) WITH (fillfactor = 25)
    """,
    """
    INSERT INTO holdfast.topic_stats_progress (filled_to, guessed_to, marked_at, mark)
    SELECT t, t, t, pg_snapshot_xmax(pg_current_snapshot()) FROM date_trunc('minute', now()) t
    """,
    # What Spark has worked out and not merged yet; a run that died leaves its rows for a day.
    """
    CREATE TABLE holdfast.topic_stats_staged (
        LIKE holdfast.topic_stats INCLUDING DEFAULTS,
        run uuid NOT NULL,
        staged_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    # Up to 15 ms a bucket each; from there on eight for each doubling: none is wider than an eighth of where it begins.
    # One expression, so that the planner puts it in place; the half keeps logarithms off whole numbers, up to 2^44 ms.
    """
    CREATE FUNCTION holdfast.duration_bucket(ms bigint) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT CASE WHEN ms < 16 THEN ms::integer
                    ELSE 8 * (floor(ln(ms + 0.5::float8) / ln(2::float8))::integer - 3)
                         + (ms >> (floor(ln(ms + 0.5::float8) / ln(2::float8))::integer - 3))::integer END
    $$
    """,
    """
    CREATE FUNCTION holdfast.bucket_top(bucket integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
        SELECT CASE WHEN bucket < 16 THEN bucket
                    ELSE ((bucket % 8 + 9)::bigint << (bucket / 8 - 1)) - 1 END
    $$
    """,
    # Counts the minutes from `since` on, up to and without `before`, anew, and reads their events once. Events come
    # with their times, so a BRIN finds them (ADR 0038); what is equal is counted before it is sorted.
    """
    CREATE FUNCTION holdfast.fill_topic_stats(since timestamptz, before timestamptz) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_bitmapscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_hashagg TO 'on'
    SET enable_hashjoin TO 'on'
    SET plan_cache_mode TO 'force_custom_plan'
    SET max_parallel_workers_per_gather TO '0'
    SET work_mem TO '32MB'
    AS $$
    DECLARE
        filled bigint;
    BEGIN
        WITH seen AS MATERIALIZED (
            SELECT date_bin('1 minute', e.at, 'epoch') AS minute, e.topic_id, e.tenant, e.event,
                   e.event = 'claimed' AND e.deliveries > 1 AS again,
                   CASE WHEN e.event IN ('claimed', 'acked')
                        THEN greatest((date_part('epoch', e.at - e.began_at) * 1000000)::bigint / 1000, 0) END AS ms,
                   min(e.topic) AS topic, count(*) AS n
            FROM holdfast.lease_events e
            WHERE e.at >= since AND e.at < before
              AND e.event IN ('enqueued', 'claimed', 'acked', 'failed', 'dead_lettered', 'expired', 'cancelled')
            GROUP BY 1, 2, 3, 4, 5, 6
        ), counted AS (
            SELECT s.minute, s.topic_id, s.tenant, min(s.topic) AS topic,
                   coalesce(sum(s.n) FILTER (WHERE s.event = 'enqueued'), 0) AS enqueued,
                   coalesce(sum(s.n) FILTER (WHERE s.event = 'acked'), 0) AS completed,
                   coalesce(sum(s.n) FILTER (WHERE s.event IN ('failed', 'dead_lettered')), 0) AS failed,
                   coalesce(sum(s.n) FILTER (WHERE s.again), 0) AS retried,
                   coalesce(sum(s.n) FILTER (WHERE s.event = 'dead_lettered'), 0) AS dead_lettered,
                   coalesce(sum(s.n) FILTER (WHERE s.event = 'expired'), 0) AS expired,
                   coalesce(sum(s.n) FILTER (WHERE s.event = 'cancelled'), 0) AS cancelled
            FROM seen s GROUP BY s.minute, s.topic_id, s.tenant
        ), ranked AS (
            SELECT s.minute, s.topic_id, s.tenant, s.event, s.ms, sum(s.n) AS n,
                   sum(sum(s.n)) OVER (PARTITION BY s.minute, s.topic_id, s.tenant, s.event ORDER BY s.ms) AS upto,
                   sum(sum(s.n)) OVER (PARTITION BY s.minute, s.topic_id, s.tenant, s.event) AS total
            FROM seen s WHERE s.ms IS NOT NULL GROUP BY s.minute, s.topic_id, s.tenant, s.event, s.ms
        ), bucketed AS (
            SELECT r.minute, r.topic_id, r.tenant, r.event, holdfast.duration_bucket(r.ms) AS bucket,
                   sum(r.n)::bigint AS n, min(r.total) AS total,
                   min(r.ms) FILTER (WHERE r.upto * 100 >= r.total * 50) AS p50,
                   min(r.ms) FILTER (WHERE r.upto * 100 >= r.total * 95) AS p95,
                   min(r.ms) FILTER (WHERE r.upto * 100 >= r.total * 99) AS p99
            FROM ranked r GROUP BY 1, 2, 3, 4, 5
        ), timed AS (
            SELECT u.minute, u.topic_id, u.tenant, u.event, min(u.total) AS total, min(u.p50) AS p50, min(u.p95) AS p95,
                   min(u.p99) AS p99, array_agg(u.bucket ORDER BY u.bucket) AS buckets,
                   array_agg(u.n ORDER BY u.bucket) AS counts
            FROM bucketed u GROUP BY u.minute, u.topic_id, u.tenant, u.event
        )
        INSERT INTO holdfast.topic_stats AS t
        SELECT c.minute, c.topic_id, c.topic, coalesce(c.tenant, ''), c.enqueued, c.completed, c.failed, c.retried,
               c.dead_lettered, c.expired, c.cancelled,
               coalesce(w.total, 0), w.p50, w.p95, w.p99, coalesce(w.buckets, '{}'), coalesce(w.counts, '{}'),
               coalesce(p.total, 0), p.p50, p.p95, p.p99, coalesce(p.buckets, '{}'), coalesce(p.counts, '{}')
        FROM counted c
        LEFT JOIN timed w ON w.minute = c.minute AND w.topic_id = c.topic_id
            AND coalesce(w.tenant, '') = coalesce(c.tenant, '') AND w.event = 'claimed'
        LEFT JOIN timed p ON p.minute = c.minute AND p.topic_id = c.topic_id
            AND coalesce(p.tenant, '') = coalesce(c.tenant, '') AND p.event = 'acked'
        ORDER BY c.topic_id, c.minute, coalesce(c.tenant, '')
        ON CONFLICT (topic_id, minute, tenant) DO UPDATE
        SET topic = excluded.topic, enqueued = excluded.enqueued, completed = excluded.completed,
            failed = excluded.failed, retried = excluded.retried, dead_lettered = excluded.dead_lettered,
            expired = excluded.expired, cancelled = excluded.cancelled, wait_count = excluded.wait_count,
            wait_p50_ms = excluded.wait_p50_ms, wait_p95_ms = excluded.wait_p95_ms, wait_p99_ms = excluded.wait_p99_ms,
            wait_buckets = excluded.wait_buckets, wait_counts = excluded.wait_counts,
            processing_count = excluded.processing_count, processing_p50_ms = excluded.processing_p50_ms,
            processing_p95_ms = excluded.processing_p95_ms, processing_p99_ms = excluded.processing_p99_ms,
            processing_buckets = excluded.processing_buckets, processing_counts = excluded.processing_counts;
        GET DIAGNOSTICS filled = ROW_COUNT;
        RETURN filled;
    END $$
    """,
    merge("throughput", COUNTS),
    merge("latency", TIMES),
]

DOWN = [
    "DROP FUNCTION holdfast.merge_latency(uuid, timestamptz, timestamptz, text, bigint)",
    "DROP FUNCTION holdfast.merge_throughput(uuid, timestamptz, timestamptz, text, bigint)",
    "DROP FUNCTION holdfast.fill_topic_stats(timestamptz, timestamptz)",
    "DROP FUNCTION holdfast.bucket_top(integer)",
    "DROP FUNCTION holdfast.duration_bucket(bigint)",
    "DROP TABLE holdfast.topic_stats_staged",
    "DROP TABLE holdfast.topic_stats_progress",
    "DROP TABLE holdfast.topic_stats",
    "ALTER TABLE holdfast.lease_events DROP COLUMN tenant, DROP COLUMN began_at",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)
    for name, pairs in PATCHES.items():
        patch(op.get_bind(), name, pairs)


def downgrade() -> None:
    for name, pairs in PATCHES.items():
        patch(op.get_bind(), name, [(after, before) for before, after in pairs])
    for statement in DOWN:
        op.execute(statement)


def patch(db: Connection, name: str, pairs: list[tuple[str, str]]) -> None:
    """Replace parts of a function's text, each of which it has once."""
    found = db.execute(
        text(
            "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace "
            "AND p.proname = :name AND position('lease_events' IN p.prosrc) > 0"  # not those that call another
        ),
        {"name": name},
    )
    body: str = found.scalar_one()
    for before, after in pairs:
        assert body.count(before) == 1, f"{name} has {body.count(before)} of {before!r}"
        body = body.replace(before, after)
    op.execute(text(body.replace(":", "\\:")))
