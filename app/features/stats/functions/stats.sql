-- The bucket of a duration: one per ms up to 15 ms, then eight per doubling, so a bucket is at most an eighth of its start
-- wide. It is one expression, so that the planner inlines it. The 0.5 keeps logarithms off whole numbers, up to 2^44 ms.
CREATE OR REPLACE FUNCTION holdfast.duration_bucket(ms bigint) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN ms < 16 THEN ms::integer
                ELSE 8 * (floor(ln(ms + 0.5::float8) / ln(2::float8))::integer - 3)
                     + (ms >> (floor(ln(ms + 0.5::float8) / ln(2::float8))::integer - 3))::integer END
$$;

-- The longest duration of a bucket, in ms.
CREATE OR REPLACE FUNCTION holdfast.bucket_top(bucket integer) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT CASE WHEN bucket < 16 THEN bucket
                ELSE ((bucket % 8 + 9)::bigint << (bucket / 8 - 1)) - 1 END
$$;

-- Count the minutes from `since` up to `before` (not included) again. Reads their events once, by the BRIN index on their
-- times (ADR 0038). Equal events are counted before they are sorted.
CREATE OR REPLACE FUNCTION holdfast.fill_topic_stats(since timestamptz, before timestamptz) RETURNS bigint
LANGUAGE plpgsql
SET enable_bitmapscan = on SET enable_seqscan = off SET enable_hashagg = on SET enable_hashjoin = on
SET plan_cache_mode = force_custom_plan SET max_parallel_workers_per_gather = 0 SET work_mem = '32MB'
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
END $$;

-- Replace minutes of topic_stats by the results of spark/topic_stats.py: counts by merge_throughput, durations by
-- merge_latency. `expected`: the number of staged rows; if it differs, nothing is merged.

CREATE OR REPLACE FUNCTION holdfast.merge_throughput(
    of_run uuid, since timestamptz, before timestamptz, of_topic text, expected bigint
) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = on SET enable_hashjoin = on SET enable_hashagg = on SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    told_to timestamptz;
    staged bigint;
    put bigint;
    cleared bigint;
BEGIN
    SELECT p.filled_to INTO told_to FROM holdfast.topic_stats_progress p FOR UPDATE;
    IF before > told_to THEN
        RAISE EXCEPTION 'minutes from % on are not complete yet', told_to USING ERRCODE = 'object_in_use';
    END IF;
    SELECT count(DISTINCT (s.topic_id, s.minute, s.tenant)) INTO staged FROM holdfast.topic_stats_staged s
    WHERE s.run = of_run AND s.minute >= since AND s.minute < before;
    IF staged <> expected THEN
        RAISE EXCEPTION '% rows are staged, % were expected', staged, expected USING ERRCODE = 'data_exception';
    END IF;
    INSERT INTO holdfast.topic_stats AS t (
        minute, topic_id, topic, tenant, enqueued, completed, failed, retried, dead_lettered, expired, cancelled)
    SELECT DISTINCT ON (s.topic_id, s.minute, s.tenant)  -- a task that ran again has staged its rows again
           s.minute, s.topic_id, s.topic, s.tenant, s.enqueued, s.completed, s.failed, s.retried, s.dead_lettered,
           s.expired, s.cancelled
    FROM holdfast.topic_stats_staged s WHERE s.run = of_run
    ORDER BY s.topic_id, s.minute, s.tenant
    ON CONFLICT (topic_id, minute, tenant) DO UPDATE
    SET enqueued = excluded.enqueued, completed = excluded.completed, failed = excluded.failed,
        retried = excluded.retried, dead_lettered = excluded.dead_lettered, expired = excluded.expired,
        cancelled = excluded.cancelled
    WHERE (t.enqueued, t.completed, t.failed, t.retried, t.dead_lettered, t.expired, t.cancelled) IS DISTINCT FROM
           (excluded.enqueued, excluded.completed, excluded.failed, excluded.retried, excluded.dead_lettered,
           excluded.expired, excluded.cancelled);
    GET DIAGNOSTICS put = ROW_COUNT;
    UPDATE holdfast.topic_stats t
    SET enqueued = 0, completed = 0, failed = 0, retried = 0, dead_lettered = 0, expired = 0, cancelled = 0
    WHERE t.minute >= since AND t.minute < before AND (of_topic IS NULL OR t.topic = of_topic)
      AND (t.enqueued, t.completed, t.failed, t.retried, t.dead_lettered, t.expired, t.cancelled) IS DISTINCT FROM
           (0, 0, 0, 0, 0, 0, 0)
      AND NOT EXISTS (
          SELECT FROM holdfast.topic_stats_staged s
          WHERE s.run = of_run AND s.topic_id = t.topic_id AND s.minute = t.minute AND s.tenant = t.tenant
      );
    GET DIAGNOSTICS cleared = ROW_COUNT;
    DELETE FROM holdfast.topic_stats t
    WHERE t.minute >= since AND t.minute < before AND (of_topic IS NULL OR t.topic = of_topic)
      AND (t.enqueued, t.completed, t.failed, t.retried, t.dead_lettered, t.expired, t.cancelled, t.wait_count,
           t.processing_count)
          = (0, 0, 0, 0, 0, 0, 0, 0, 0);
    DELETE FROM holdfast.topic_stats_staged s WHERE s.run = of_run;
    RETURN put + cleared;
END $$;

CREATE OR REPLACE FUNCTION holdfast.merge_latency(
    of_run uuid, since timestamptz, before timestamptz, of_topic text, expected bigint
) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = on SET enable_hashjoin = on SET enable_hashagg = on SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    told_to timestamptz;
    staged bigint;
    put bigint;
    cleared bigint;
BEGIN
    SELECT p.filled_to INTO told_to FROM holdfast.topic_stats_progress p FOR UPDATE;
    IF before > told_to THEN
        RAISE EXCEPTION 'minutes from % on are not complete yet', told_to USING ERRCODE = 'object_in_use';
    END IF;
    SELECT count(DISTINCT (s.topic_id, s.minute, s.tenant)) INTO staged FROM holdfast.topic_stats_staged s
    WHERE s.run = of_run AND s.minute >= since AND s.minute < before;
    IF staged <> expected THEN
        RAISE EXCEPTION '% rows are staged, % were expected', staged, expected USING ERRCODE = 'data_exception';
    END IF;
    INSERT INTO holdfast.topic_stats AS t (
        minute, topic_id, topic, tenant, wait_count, wait_p50_ms, wait_p95_ms, wait_p99_ms, wait_buckets,
        wait_counts, processing_count, processing_p50_ms, processing_p95_ms, processing_p99_ms, processing_buckets,
        processing_counts)
    SELECT DISTINCT ON (s.topic_id, s.minute, s.tenant)  -- a task that ran again has staged its rows again
           s.minute, s.topic_id, s.topic, s.tenant, s.wait_count, s.wait_p50_ms, s.wait_p95_ms, s.wait_p99_ms,
           s.wait_buckets, s.wait_counts, s.processing_count, s.processing_p50_ms, s.processing_p95_ms,
           s.processing_p99_ms, s.processing_buckets, s.processing_counts
    FROM holdfast.topic_stats_staged s WHERE s.run = of_run
    ORDER BY s.topic_id, s.minute, s.tenant
    ON CONFLICT (topic_id, minute, tenant) DO UPDATE
    SET wait_count = excluded.wait_count, wait_p50_ms = excluded.wait_p50_ms, wait_p95_ms = excluded.wait_p95_ms,
        wait_p99_ms = excluded.wait_p99_ms, wait_buckets = excluded.wait_buckets,
        wait_counts = excluded.wait_counts, processing_count = excluded.processing_count,
        processing_p50_ms = excluded.processing_p50_ms, processing_p95_ms = excluded.processing_p95_ms,
        processing_p99_ms = excluded.processing_p99_ms, processing_buckets = excluded.processing_buckets,
        processing_counts = excluded.processing_counts
    WHERE (t.wait_count, t.wait_p50_ms, t.wait_p95_ms, t.wait_p99_ms, t.wait_buckets, t.wait_counts,
           t.processing_count, t.processing_p50_ms, t.processing_p95_ms, t.processing_p99_ms, t.processing_buckets,
           t.processing_counts) IS DISTINCT FROM (excluded.wait_count, excluded.wait_p50_ms, excluded.wait_p95_ms,
           excluded.wait_p99_ms, excluded.wait_buckets, excluded.wait_counts, excluded.processing_count,
           excluded.processing_p50_ms, excluded.processing_p95_ms, excluded.processing_p99_ms,
           excluded.processing_buckets, excluded.processing_counts);
    GET DIAGNOSTICS put = ROW_COUNT;
    UPDATE holdfast.topic_stats t
    SET wait_count = 0, wait_p50_ms = NULL, wait_p95_ms = NULL, wait_p99_ms = NULL, wait_buckets = '{}',
        wait_counts = '{}', processing_count = 0, processing_p50_ms = NULL, processing_p95_ms = NULL,
        processing_p99_ms = NULL, processing_buckets = '{}', processing_counts = '{}'
    WHERE t.minute >= since AND t.minute < before AND (of_topic IS NULL OR t.topic = of_topic)
      AND (t.wait_count, t.wait_p50_ms, t.wait_p95_ms, t.wait_p99_ms, t.wait_buckets, t.wait_counts,
           t.processing_count, t.processing_p50_ms, t.processing_p95_ms, t.processing_p99_ms, t.processing_buckets,
           t.processing_counts) IS DISTINCT FROM (0, NULL, NULL, NULL, '{}', '{}', 0, NULL, NULL, NULL, '{}', '{}')
      AND NOT EXISTS (
          SELECT FROM holdfast.topic_stats_staged s
          WHERE s.run = of_run AND s.topic_id = t.topic_id AND s.minute = t.minute AND s.tenant = t.tenant
      );
    GET DIAGNOSTICS cleared = ROW_COUNT;
    DELETE FROM holdfast.topic_stats t
    WHERE t.minute >= since AND t.minute < before AND (of_topic IS NULL OR t.topic = of_topic)
      AND (t.enqueued, t.completed, t.failed, t.retried, t.dead_lettered, t.expired, t.cancelled, t.wait_count,
           t.processing_count)
          = (0, 0, 0, 0, 0, 0, 0, 0, 0);
    DELETE FROM holdfast.topic_stats_staged s WHERE s.run = of_run;
    RETURN put + cleared;
END $$;
