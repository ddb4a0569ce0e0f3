-- What became of a topic's jobs, step by step.   $1 topic id  $2 from  $3 to, not included  $4 the step, an interval:
-- steps begin at $2   $5 only this tenant, or NULL for all
-- One row a step in which anything was, by time: `at_ms` since 1970, counts, and of waiting and processing how many and
-- the percentiles by nearest rank in ms (NULL: none): exact where a step is one row, else the top of the bucket that has
-- them, which is up to an eighth too high and never too low.
-- Costs a row a minute and tenant.   Index: primary key.   Buckets: app/features/stats/functions/stats.sql.
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
SELECT (date_part('epoch', o.at) * 1000)::bigint AS at_ms, max(o.enqueued)::bigint AS enqueued,
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
