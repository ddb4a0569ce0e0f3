-- app/queue/sql/enqueue.sql as a function, for enqueue_deduped: jobs with neither keys nor groups.
-- tests/queue/test_statements.py holds one against the other.
CREATE OR REPLACE FUNCTION holdfast.enqueue_plain(
    text, integer, oid, bytea[], text[], text[], json[], text[], smallint[], bigint[], timestamptz[], bigint[],
    integer[], text[], bigint
) RETURNS SETOF bigint[]
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
    WITH clock AS MATERIALIZED (
        SELECT clock_timestamp() AS at
    ), record AS MATERIALIZED (
        SELECT r.*, nextval($3::oid::regclass) AS seq
        FROM unnest($4::bytea[], $5::text[], $6::text[], $7::json[], $8::text[], $9::smallint[], $10::bigint[],
                    $11::timestamptz[], $12::bigint[], $13::integer[], $14::text[])
            WITH ORDINALITY AS r(payload, tag, producer, metadata, tenant, priority, delay_ms, run_at, ttl_ms,
                                 max_deliveries, content_type, ord)
    ), job AS (
        INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, priority, visible_at, created_at,
                                   updated_at, expires_at, max_deliveries, tag, producer, metadata, payload,
                                   content_type)
        SELECT $1, $2, r.seq, r.seq,
               CASE WHEN greatest(r.run_at, c.at + r.delay_ms * interval '1 ms') > c.at
                    THEN 'scheduled' ELSE 'ready' END::holdfast.job_state,
               coalesce(r.tenant, ''), coalesce(r.priority, 0::smallint),
               greatest(r.run_at, c.at + r.delay_ms * interval '1 ms', c.at), c.at, c.at,
               c.at + nullif(coalesce(r.ttl_ms, $15::bigint), 0) * interval '1 ms',
               r.max_deliveries, r.tag, r.producer, r.metadata, r.payload,
               r.content_type
        FROM record r CROSS JOIN clock c
    ), event AS (
        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, max_deliveries, node, tenant, until)
        SELECT $1, $2, r.seq, 'enqueued', 0, r.max_deliveries, r.producer, nullif(r.tenant, ''),
               CASE WHEN greatest(r.run_at, c.at + r.delay_ms * interval '1 ms') > c.at
                    THEN greatest(r.run_at, c.at + r.delay_ms * interval '1 ms') END
        FROM record r CROSS JOIN clock c
    ), tally AS (
        INSERT INTO holdfast.tallies (topic_id, ready, scheduled, bytes)
        SELECT $2, sum(1 - later), sum(later), sum(size)
        FROM (
            SELECT coalesce(greatest(r.run_at, c.at + r.delay_ms * interval '1 ms') > c.at, false)::integer
                       AS later,
                   octet_length(r.payload) AS size
            FROM record r CROSS JOIN clock c
        ) one
    )
    SELECT array_agg(seq ORDER BY ord) AS seqs FROM record;
END $$;
