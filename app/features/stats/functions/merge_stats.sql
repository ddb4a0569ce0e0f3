-- What Spark has worked out (spark/topic_stats.py) takes the place of what topic_stats has of the same minutes: counts
-- by one function, durations by the other. `expected`: how many rows were staged; otherwise nothing is merged.

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
        RAISE EXCEPTION 'minutes from % on are still being told', told_to USING ERRCODE = 'object_in_use';
    END IF;
    SELECT count(DISTINCT (s.topic_id, s.minute, s.tenant)) INTO staged FROM holdfast.topic_stats_staged s
    WHERE s.run = of_run AND s.minute >= since AND s.minute < before;
    IF staged <> expected THEN
        RAISE EXCEPTION '% rows are staged, and % were to be', staged, expected USING ERRCODE = 'data_exception';
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
        RAISE EXCEPTION 'minutes from % on are still being told', told_to USING ERRCODE = 'object_in_use';
    END IF;
    SELECT count(DISTINCT (s.topic_id, s.minute, s.tenant)) INTO staged FROM holdfast.topic_stats_staged s
    WHERE s.run = of_run AND s.minute >= since AND s.minute < before;
    IF staged <> expected THEN
        RAISE EXCEPTION '% rows are staged, and % were to be', staged, expected USING ERRCODE = 'data_exception';
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
