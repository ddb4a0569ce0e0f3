-- Delete the oldest claimable jobs of a queue that exceeds its caps: first due jobs, by the time since when they are
-- due, then ready jobs, by position. Leaves jobs with a valid lease, jobs that are being leased, and jobs with no
-- deliveries left, which become dead letters.
--   $1   topic
--   $2   jobs to delete, at least
--   $3   bytes of payload to delete, at least
--   $4   most jobs to read
--   $5   whether deliveries are limited here
--   $6   the topic's max_deliveries, 0 for no limit
--   Low marks of the lanes that have some:
--   $7   tenants
--   $8   priorities
--   $9   positions
--   $10  times in µs since 1970
-- Answers one row: evicted and bytes. Fewer than asked for: there are no more, or $4 of them were being leased, or
-- another statement changed one meanwhile.
-- Reads without locks, then locks one job after the other until there are enough, so all other jobs stay claimable.
-- Indexes: primary key of lanes, jobs_due, jobs_ready, primary key. Needs the planner settings of the hot pool.
WITH lane AS MATERIALIZED (
    SELECT l.tenant, l.priority, coalesce(m.low, 0) AS low,
           coalesce(timestamptz 'epoch' + m.due_low * interval '1 microsecond', '-infinity') AS due_low
    FROM holdfast.lanes l
    LEFT JOIN unnest($7::text[], $8::smallint[], $9::bigint[], $10::bigint[]) AS m(tenant, priority, low, due_low)
        ON m.tenant = l.tenant AND m.priority = l.priority
    WHERE l.topic = $1
), looked AS MATERIALIZED (
    SELECT x.seq, x.bytes, row_number() OVER (ORDER BY x.due_at, x.position) AS ord FROM lane l CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT j.seq, octet_length(j.payload) AS bytes, j.visible_at AS due_at, NULL::bigint AS position,
                   $5::boolean AND coalesce(j.max_deliveries, $6::integer) > 0
                   AND j.deliveries >= coalesce(j.max_deliveries, $6::integer) AS spent
            FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
              AND j.state IN ('leased', 'scheduled') AND j.visible_at > l.due_low AND j.visible_at < now()
            ORDER BY j.visible_at LIMIT $4::integer
        ) due
        UNION ALL
        SELECT * FROM (
            SELECT j.seq, octet_length(j.payload), NULL::timestamptz, j.position, false
            FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
              AND j.state = 'ready' AND j.position > l.low
            ORDER BY j.position LIMIT $4::integer
        ) ready
    ) x WHERE NOT x.spent ORDER BY ord LIMIT $4::integer
), wanted AS (
    SELECT count(*) AS n
    FROM (SELECT ord, sum(bytes) OVER (ORDER BY ord) - bytes AS before FROM looked) l
    WHERE l.ord <= $2::bigint OR l.before < $3::bigint
), picked AS MATERIALIZED (
    SELECT x.* FROM (SELECT seq FROM looked ORDER BY ord) l CROSS JOIN LATERAL (
        SELECT ctid AS tid, j.state::text AS was, j.lease_id, j.node FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = l.seq
          AND (j.state::text = 'ready' OR (j.state::text IN ('leased', 'scheduled') AND j.visible_at < now()))
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) x LIMIT (SELECT n FROM wanted)
), gone AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.was, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes,
              j.cancelled_at IS NULL AS lost
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
    SELECT $1, topic_id, seq, 'deleted', deliveries, lease_id, node, 'evicted' FROM gone
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, leased, bytes, cap_lost_to)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'leased'), -sum(bytes), max(seq) FILTER (WHERE lost)
    FROM gone HAVING count(*) > 0
)
SELECT count(*) AS evicted, coalesce(sum(bytes), 0)::bigint AS bytes FROM gone
