-- Enqueues jobs without keys and groups, in the given order, all or none. Used by enqueue.sql, and by enqueue_deduped
-- for new jobs. The parameters are described in enqueue.sql.
--
-- The table of jobs is locked before the clock is read, so no job gets a time from before the lock (ADR 0012).
CREATE OR REPLACE FUNCTION holdfast.enqueue_plain(
    of_topic text, of_id integer, sequence oid, bytea[], text[], text[], json[], text[], smallint[], bigint[],
    timestamptz[], bigint[], integer[], text[], bigint
) RETURNS SETOF bigint[]
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
    WITH clock AS MATERIALIZED (
        SELECT clock_timestamp() AS at
    ), record AS MATERIALIZED (
        SELECT r.*, c.at, greatest(r.run_at, c.at + r.delay_ms * interval '1 ms', c.at) AS starts_at
        FROM (
            SELECT u.*, nextval(sequence::regclass) AS seq
            FROM unnest($4::bytea[], $5::text[], $6::text[], $7::json[], $8::text[], $9::smallint[], $10::bigint[],
                        $11::timestamptz[], $12::bigint[], $13::integer[], $14::text[])
                WITH ORDINALITY AS u(payload, tag, producer, metadata, tenant, priority, delay_ms, run_at, ttl_ms,
                                     max_deliveries, content_type, ord)
        ) r CROSS JOIN clock c
    ), job AS (
        INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, priority, visible_at, created_at,
                                   updated_at, expires_at, max_deliveries, tag, producer, metadata, payload,
                                   content_type)
        SELECT of_topic, of_id, seq, seq,
               CASE WHEN starts_at > at THEN 'scheduled' ELSE 'ready' END::holdfast.job_state,
               coalesce(tenant, ''), coalesce(priority, 0::smallint), starts_at, at, at,
               at + nullif(coalesce(ttl_ms, $15::bigint), 0) * interval '1 ms',
               max_deliveries, tag, producer, metadata, payload, content_type
        FROM record
    ), event AS (
        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, max_deliveries, node, tenant, until)
        SELECT of_topic, of_id, seq, 'enqueued', 0, max_deliveries, producer, nullif(tenant, ''),
               CASE WHEN starts_at > at THEN starts_at END
        FROM record
    ), tally AS (
        INSERT INTO holdfast.tallies (topic_id, ready, scheduled, bytes)
        SELECT of_id, count(*) FILTER (WHERE starts_at = at), count(*) FILTER (WHERE starts_at > at),
               sum(octet_length(payload))
        FROM record
    )
    SELECT array_agg(seq ORDER BY ord) AS seqs FROM record;
END $$;
