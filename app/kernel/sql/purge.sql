-- Delete a batch of a queue's jobs by their states, for good, those under a good lease too if that is asked for.
--   $1 topic  $2 after this seq  $3 up to this one  $4 states by the clock (see explain_job)
--   $5 most jobs to look at
-- Answers one row: deleted; of those, ready and in_flight as counts have them; picked, those that were locked (more than
-- deleted: another verb changed one meanwhile, and the caller runs the statement again from the same place); last_seq
-- looked at (NULL: there is nothing more). Index: primary key.
WITH looked AS MATERIALIZED (
    SELECT j.seq FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq > $2::bigint AND j.seq <= $3::bigint
    ORDER BY j.seq LIMIT $5::integer
), picked AS MATERIALIZED (
    SELECT x.* FROM looked l CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.state::text AS was, j.state::text = 'leased' AND j.visible_at >= now() AS held,
               j.lease_id, j.node
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = l.seq
          AND holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) = ANY ($4::text[])
        FOR UPDATE
    ) x
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.was, p.held, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
    SELECT $1, topic_id, seq, 'deleted', deliveries, lease_id, node, 'was ' || was FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, failed, expired, bytes)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'),
           -count(*) FILTER (WHERE was = 'failed'), -count(*) FILTER (WHERE was = 'expired'),
           -coalesce(sum(bytes) FILTER (WHERE was NOT IN ('failed', 'expired')), 0)
    FROM done HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM done) AS deleted, (SELECT count(*) FROM done d WHERE d.was = 'ready') AS ready,
       (SELECT count(*) FROM done d WHERE d.held) AS in_flight, (SELECT count(*) FROM picked) AS picked,
       (SELECT max(l.seq) FROM looked l) AS last_seq
