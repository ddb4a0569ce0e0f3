-- Take the oldest jobs that could be claimed now out of a queue that holds more than its caps, for good: those that came
-- back, by the times since when they are due, before fresh ones, by their positions. Left are those whose lease is good,
-- those that somebody is about to lease, and those without a delivery left, which go to the dead letters.
--   $1 topic  $2 so many jobs, or  $3 so many bytes of payload, whichever are more jobs  $4 most jobs to look at
--   $5 whether deliveries run out here  $6 the topic's max_deliveries, 0 for no end
--   low marks of lanes that have one:  $7 tenants  $8 priorities  $9 positions  $10 times in µs since 1970
-- Answers one row: how many jobs and bytes went. Less than asked: there are no more, or $4 of them were being leased, or
-- another verb changed one meanwhile.
-- Looks without locks, then locks one by one until there are enough: what it doesn't take out can be claimed all along.
-- Indexes: primary key of lanes, jobs_due, jobs_ready, primary key. Needs the hot pool's planner settings.
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
