-- Reads of the ledger. Its only index is a BRIN, which needs bitmap scans. The pools' sessions have these off, so the
-- functions turn them on. A plan made for the days that are read is better than one made before (ADR 0038).

-- From when on a topic's events are shown, by its event_ttl_ms.
CREATE OR REPLACE FUNCTION holdfast.events_from(of_topic_id integer) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
    SELECT greatest(
        (SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD'))::timestamp AT TIME ZONE 'UTC'
         FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'holdfast.lease_events'::regclass),
        (SELECT now() - nullif(t.event_ttl_ms, 0) * interval '1 ms' FROM holdfast.topics t
         WHERE t.id = of_topic_id))
$$;

-- A job's events since an instant, in order. The bound is a variable, so that it is computed once. As a condition it
-- was computed for each row of each range that the BRIN leaves, which took 64 us where the row takes 0.4. A topic has
-- no events from before it was created.
CREATE OR REPLACE FUNCTION holdfast.job_events(of_topic_id integer, of_seq bigint, since timestamptz, most integer)
RETURNS SETOF holdfast.lease_events
LANGUAGE plpgsql STABLE
SET enable_bitmapscan = on SET enable_seqscan = off SET plan_cache_mode = force_custom_plan
SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    first_at CONSTANT timestamptz := greatest(
        since, holdfast.events_from(of_topic_id),
        (SELECT t.created_at FROM holdfast.topics t WHERE t.id = of_topic_id));
BEGIN
    RETURN QUERY
    SELECT e.* FROM holdfast.lease_events e
    WHERE e.topic_id = of_topic_id AND e.seq = of_seq AND e.at >= first_at
    ORDER BY e.at LIMIT most;
END $$;

-- A job's newest events.
CREATE OR REPLACE FUNCTION holdfast.last_events(of_topic_id integer, of_seq bigint, most integer)
RETURNS SETOF holdfast.lease_events
LANGUAGE plpgsql STABLE
SET enable_bitmapscan = on SET enable_seqscan = off SET plan_cache_mode = force_custom_plan
SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    first_at CONSTANT timestamptz := greatest(
        '-infinity', holdfast.events_from(of_topic_id),
        (SELECT t.created_at FROM holdfast.topics t WHERE t.id = of_topic_id));
BEGIN
    RETURN QUERY
    SELECT e.* FROM holdfast.lease_events e
    WHERE e.topic_id = of_topic_id AND e.seq = of_seq AND e.at >= first_at
    ORDER BY e.at DESC, e.tx DESC LIMIT most;
END $$;

-- How many jobs of a topic were claimed, acked and enqueued in the last seconds.
CREATE OR REPLACE FUNCTION holdfast.recent_events(
    of_topic_id integer, seconds double precision, OUT claimed bigint, OUT acked bigint, OUT enqueued bigint,
    OUT first_claim timestamptz, OUT last_claim timestamptz
)
LANGUAGE plpgsql STABLE
SET enable_bitmapscan = on SET enable_seqscan = off SET plan_cache_mode = force_custom_plan
SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    first_at CONSTANT timestamptz := greatest(
        now() - seconds * interval '1 second', holdfast.events_from(of_topic_id),
        (SELECT t.created_at FROM holdfast.topics t WHERE t.id = of_topic_id));
BEGIN
    SELECT count(*) FILTER (WHERE e.event = 'claimed'), count(*) FILTER (WHERE e.event = 'acked'),
           count(*) FILTER (WHERE e.event = 'enqueued'), min(e.at) FILTER (WHERE e.event = 'claimed'),
           max(e.at) FILTER (WHERE e.event = 'claimed')
    INTO claimed, acked, enqueued, first_claim, last_claim
    FROM holdfast.lease_events e
    WHERE e.topic_id = of_topic_id AND e.at > first_at;
END $$;
