-- name: depths_looked
-- Record that all queues were sampled in this minute.   Index: primary key.
INSERT INTO holdfast.depth_looks (minute) VALUES (date_trunc('minute', now(), 'UTC')) ON CONFLICT (minute) DO NOTHING

-- name: depths_sweep
-- Delete depths older than $1, an interval: $2 rows at most. The last older row stays, since it holds until the next one,
-- unless the topic is gone. Returns how many. It visits each topic that has rows.   Index: primary key.
WITH RECURSIVE topic AS (
    (SELECT d.topic_id FROM holdfast.depths d ORDER BY d.topic_id LIMIT 1)
    UNION ALL
    SELECT n.topic_id FROM topic t CROSS JOIN LATERAL (
        SELECT d.topic_id FROM holdfast.depths d WHERE d.topic_id > t.topic_id ORDER BY d.topic_id LIMIT 1
    ) n
), old AS MATERIALIZED (
    SELECT x.tid FROM topic t CROSS JOIN LATERAL (
        SELECT CASE WHEN EXISTS (SELECT FROM holdfast.topics p WHERE p.id = t.topic_id) THEN (
            SELECT d.minute FROM holdfast.depths d
            WHERE d.topic_id = t.topic_id AND d.minute < now() - $1::interval ORDER BY d.minute DESC LIMIT 1
        ) ELSE now() - $1::interval END AS edge
    ) e CROSS JOIN LATERAL (
        SELECT d.ctid AS tid FROM holdfast.depths d
        WHERE d.topic_id = t.topic_id AND d.minute < e.edge
        ORDER BY d.minute LIMIT $2::integer FOR UPDATE SKIP LOCKED
    ) x LIMIT $2::integer
), gone AS (
    DELETE FROM holdfast.depths d USING old o WHERE d.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: depths_write
-- Store the depths of queues that differ from their last rows. Index: primary key. Arrays with one element per queue:
--   $1  topic ids
--   $2  ready
--   $3  in flight
--   $4  scheduled
--   $5  blocked
--   $6  interval: how long ago the depths were read
-- Returns how many. The row of the same minute is replaced. Nothing is written for a deleted topic.
WITH at AS MATERIALIZED (
    SELECT date_trunc('minute', now() - $6::interval, 'UTC') AS minute
), put AS (
    INSERT INTO holdfast.depths AS d (topic_id, minute, ready, in_flight, scheduled, blocked)
    SELECT q.topic_id, at.minute, q.ready, q.in_flight, q.scheduled, q.blocked
    FROM at CROSS JOIN unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        AS q(topic_id, ready, in_flight, scheduled, blocked)
    LEFT JOIN LATERAL (
        SELECT l.ready, l.in_flight, l.scheduled, l.blocked FROM holdfast.depths l
        WHERE l.topic_id = q.topic_id AND l.minute <= at.minute ORDER BY l.minute DESC LIMIT 1
    ) l ON true
    WHERE (q.ready, q.in_flight, q.scheduled, q.blocked)
          IS DISTINCT FROM (l.ready, l.in_flight, l.scheduled, l.blocked)
      AND EXISTS (SELECT FROM holdfast.topics t WHERE t.id = q.topic_id)
    ORDER BY q.topic_id
    ON CONFLICT (topic_id, minute) DO UPDATE
    SET ready = excluded.ready, in_flight = excluded.in_flight, scheduled = excluded.scheduled,
        blocked = excluded.blocked
    RETURNING 1
)
SELECT count(*) FROM put

-- name: flows
-- Statistics of topics in the last minutes.   $1 topic ids  $2 how many minutes, the current one included
-- One row per topic with any: `ago` (minutes before the current one, oldest first), and the counts of each minute over all
-- tenants. Reads a row per minute and tenant.   Index: primary key of topic_stats.
SELECT t.id AS topic_id, f.ago, f.enqueued, f.claimed, f.completed, f.failed, f.dead_lettered
FROM unnest($1::integer[]) AS t(id) CROSS JOIN LATERAL (
    SELECT array_agg(m.ago ORDER BY m.ago DESC) AS ago, array_agg(m.enqueued ORDER BY m.ago DESC) AS enqueued,
           array_agg(m.claimed ORDER BY m.ago DESC) AS claimed, array_agg(m.completed ORDER BY m.ago DESC) AS completed,
           array_agg(m.failed ORDER BY m.ago DESC) AS failed,
           array_agg(m.dead_lettered ORDER BY m.ago DESC) AS dead_lettered
    FROM (
        SELECT (date_part('epoch', date_trunc('minute', now()) - s.minute) / 60)::integer AS ago,
               sum(s.enqueued)::bigint AS enqueued, sum(s.wait_count)::bigint AS claimed,
               sum(s.completed)::bigint AS completed, sum(s.failed)::bigint AS failed,
               sum(s.dead_lettered)::bigint AS dead_lettered
        FROM holdfast.topic_stats s
        WHERE s.topic_id = t.id AND s.minute > date_trunc('minute', now()) - $2::integer * interval '1 minute'
        GROUP BY s.minute
    ) m
) f WHERE f.ago IS NOT NULL

-- name: looks_sweep
-- Delete records of samples older than $1, an interval: $2 rows at most. Returns how many.   Index: primary key.
WITH old AS MATERIALIZED (
    SELECT l.minute FROM holdfast.depth_looks l WHERE l.minute < now() - $1::interval
    ORDER BY l.minute LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.depth_looks l USING old o WHERE l.minute = o.minute RETURNING 1
)
SELECT count(*) FROM gone

-- name: stats_fill
-- Count the jobs of all topics in the whole minutes from $1 up to $2 (not included). Returns how many rows of topic_stats
-- were written; existing rows are replaced. Reads the events of that time once.   The function is in
-- functions/stats.sql.   Index: lease_events_read.
SELECT holdfast.fill_topic_stats($1::timestamptz, $2::timestamptz)

-- name: stats_mark
-- Store the progress of counting minutes.
--   $1  minutes before this are counted for good
--   $2  minutes before this are counted early
--   $3  whether the mark was reached: then set a new one
-- Transactions from the mark on got their ids after this statement began, and a transaction gets its id before its events
-- get their times. The 2 s are for a transaction that was stopped between the two.
UPDATE holdfast.topic_stats_progress
SET filled_to = $1, guessed_to = greatest(guessed_to, $2::timestamptz),
    marked_at = CASE WHEN $3::boolean THEN statement_timestamp() - interval '2 s' ELSE marked_at END,
    mark = CASE WHEN $3::boolean THEN pg_snapshot_xmax(pg_current_snapshot()) ELSE mark END

-- name: stats_place
-- The progress of counting minutes, and how far it can go now. Locks the row; other processes skip it.
--   $1  interval: minutes older than this are counted early if a transaction is still open
-- One row. filled_to: minutes before it are counted. closed_to: no event can appear before it any more. It is the mark's
-- minute, once all transactions from before the mark have ended; else NULL. guessed_to, guess_to: the minutes between
-- them can be counted early. A mark in the future comes from the cluster that the database was dumped from, and its
-- transactions have ended. No row: another process has locked it.   Index: none, it is one row.
WITH picked AS MATERIALIZED (
    SELECT p.filled_to, p.guessed_to, p.marked_at, p.mark FROM holdfast.topic_stats_progress p
    LIMIT 1 FOR UPDATE SKIP LOCKED
)
SELECT p.filled_to, greatest(p.guessed_to, p.filled_to) AS guessed_to,
       CASE WHEN pg_snapshot_xmin(pg_current_snapshot()) >= p.mark OR p.mark > pg_snapshot_xmax(pg_current_snapshot())
            THEN greatest(date_bin('1 minute', p.marked_at, 'epoch'), p.filled_to) END AS closed_to,
       date_bin('1 minute', clock_timestamp() - $1::interval, 'epoch') AS guess_to
FROM picked p

-- name: stats_sweep
-- Delete statistics older than $1, an interval: $2 rows at most. Returns how many. It visits each topic that has rows.
-- Index: primary key.
WITH RECURSIVE topic AS (
    (SELECT s.topic_id FROM holdfast.topic_stats s ORDER BY s.topic_id LIMIT 1)
    UNION ALL
    SELECT n.topic_id FROM topic t CROSS JOIN LATERAL (
        SELECT s.topic_id FROM holdfast.topic_stats s WHERE s.topic_id > t.topic_id ORDER BY s.topic_id LIMIT 1
    ) n
), old AS MATERIALIZED (
    SELECT x.tid FROM topic t CROSS JOIN LATERAL (
        SELECT s.ctid AS tid FROM holdfast.topic_stats s
        WHERE s.topic_id = t.topic_id AND s.minute < now() - $1::interval
        ORDER BY s.minute LIMIT $2::integer FOR UPDATE SKIP LOCKED
    ) x LIMIT $2::integer
), gone AS (
    DELETE FROM holdfast.topic_stats s USING old o WHERE s.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: stats_unstage
-- Delete rows that a run of Spark has staged and not merged: older than $1, an interval, $2 at most. Returns how many.
-- Index: none; the table only has rows of current and failed runs.
WITH old AS MATERIALIZED (
    SELECT s.ctid AS tid FROM holdfast.topic_stats_staged s
    WHERE s.staged_at < now() - $1::interval LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.topic_stats_staged s USING old o WHERE s.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: topic_depths
-- Depths of a queue by steps. Indexes: primary keys, two look-ups per step.
--   $1  topic id
--   $2  start
--   $3  number of steps
--   $4  length of a step, an interval
--   $5  interval: without a sample for this long, the depth is unknown
-- One row per step with a known depth, by time: `at` in ms since 1970, and the depth at its end, or now.
SELECT (date_part('epoch', s.at) * 1000)::bigint AS at, d.ready, d.in_flight, d.scheduled, d.blocked
FROM (
    SELECT $2::timestamptz + n * $4::interval AS at,
           least($2::timestamptz + (n + 1) * $4::interval, now()) AS before
    FROM generate_series(0, $3::integer - 1) AS n
) s CROSS JOIN LATERAL (
    SELECT d.ready, d.in_flight, d.scheduled, d.blocked FROM holdfast.depths d
    WHERE d.topic_id = $1::integer AND d.minute < s.before ORDER BY d.minute DESC LIMIT 1
) d
WHERE s.at < now()
  AND EXISTS (SELECT FROM holdfast.depth_looks l WHERE l.minute < s.before AND l.minute >= s.before - $5::interval)
ORDER BY s.at

-- name: topic_stats
-- Statistics of a topic by steps. Index: primary key; reads a row per minute and tenant.
--   $1  topic id
--   $2  start, where the first step begins
--   $3  end, not included
--   $4  length of a step, an interval
--   $5  only this tenant, or NULL for all
-- One row per step with any events, by time: `at` in ms since 1970, counts, and the number and percentiles (nearest rank,
-- in ms, NULL if there are none) of waits and processing times. Percentiles are exact if the step is one row. Else they
-- are the top of their bucket (functions/stats.sql), up to an eighth too high and never too low.
WITH picked AS MATERIALIZED (
    SELECT date_bin($4::interval, s.minute, $2::timestamptz) AS at, s.* FROM holdfast.topic_stats s
    WHERE s.topic_id = $1::integer AND s.minute >= $2 AND s.minute < $3::timestamptz
      AND ($5::text IS NULL OR s.tenant = $5::text)
), spread AS (
    SELECT p.at, b.kind, b.bucket, sum(b.n) AS n FROM picked p CROSS JOIN LATERAL (
        SELECT 'wait' AS kind, w.bucket, w.n FROM unnest(p.wait_buckets, p.wait_counts) AS w(bucket, n)
        UNION ALL
        SELECT 'processing', r.bucket, r.n FROM unnest(p.processing_buckets, p.processing_counts) AS r(bucket, n)
    ) b GROUP BY p.at, b.kind, b.bucket
), ranked AS (
    SELECT s.at, s.kind, s.bucket, sum(s.n) OVER (PARTITION BY s.at, s.kind ORDER BY s.bucket) AS upto,
           sum(s.n) OVER (PARTITION BY s.at, s.kind) AS total
    FROM spread s
), row_of AS (
    SELECT p.at, NULL AS kind, sum(p.enqueued) AS enqueued, sum(p.completed) AS completed, sum(p.failed) AS failed,
           sum(p.retried) AS retried, sum(p.dead_lettered) AS dead_lettered, sum(p.expired) AS expired,
           sum(p.cancelled) AS cancelled, sum(p.wait_count) AS waits, sum(p.processing_count) AS processings,
           CASE WHEN count(*) = 1 THEN array_agg(ARRAY[p.wait_p50_ms, p.wait_p95_ms, p.wait_p99_ms]) END AS exact_wait,
           CASE WHEN count(*) = 1 THEN array_agg(ARRAY[p.processing_p50_ms, p.processing_p95_ms, p.processing_p99_ms])
           END AS exact_processing, NULL::bigint AS p50, NULL::bigint AS p95, NULL::bigint AS p99
    FROM picked p GROUP BY p.at
    UNION ALL
    SELECT r.at, r.kind, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           holdfast.bucket_top(min(r.bucket) FILTER (WHERE r.upto * 100 >= r.total * 50)),
           holdfast.bucket_top(min(r.bucket) FILTER (WHERE r.upto * 100 >= r.total * 95)),
           holdfast.bucket_top(min(r.bucket) FILTER (WHERE r.upto * 100 >= r.total * 99))
    FROM ranked r GROUP BY r.at, r.kind
)
SELECT (date_part('epoch', o.at) * 1000)::bigint AS at, max(o.enqueued)::bigint AS enqueued,
       max(o.completed)::bigint AS completed, max(o.failed)::bigint AS failed, max(o.retried)::bigint AS retried,
       max(o.dead_lettered)::bigint AS dead_lettered, max(o.expired)::bigint AS expired,
       max(o.cancelled)::bigint AS cancelled,
       max(o.waits)::bigint AS wait_count,
       coalesce((max(o.exact_wait))[1][1], max(o.p50) FILTER (WHERE o.kind = 'wait')) AS wait_p50_ms,
       coalesce((max(o.exact_wait))[1][2], max(o.p95) FILTER (WHERE o.kind = 'wait')) AS wait_p95_ms,
       coalesce((max(o.exact_wait))[1][3], max(o.p99) FILTER (WHERE o.kind = 'wait')) AS wait_p99_ms,
       max(o.processings)::bigint AS processing_count,
       coalesce((max(o.exact_processing))[1][1], max(o.p50) FILTER (WHERE o.kind = 'processing')) AS processing_p50_ms,
       coalesce((max(o.exact_processing))[1][2], max(o.p95) FILTER (WHERE o.kind = 'processing')) AS processing_p95_ms,
       coalesce((max(o.exact_processing))[1][3], max(o.p99) FILTER (WHERE o.kind = 'processing')) AS processing_p99_ms
FROM row_of o GROUP BY o.at ORDER BY o.at

-- name: topic_stats_told
-- Up to when all minutes are counted, in ms since 1970, and the time. One row.   Index: none, it is one row.
SELECT (date_part('epoch', p.filled_to) * 1000)::bigint AS filled_to_ms, clock_timestamp() AS at
FROM holdfast.topic_stats_progress p

-- name: untold
-- How many minutes are not counted yet, the current one included; 1,440 at most. Minutes that were counted early count as
-- counted. One row.   Index: none, it is one row.
SELECT greatest(0, 1 + date_part('epoch', date_trunc('minute', now()) - greatest(
    p.filled_to, p.guessed_to, date_trunc('minute', now()) - interval '1 day')) / 60)::integer
FROM holdfast.topic_stats_progress p
