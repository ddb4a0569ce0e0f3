-- Delete the jobs with a key, for good: whatever their state, leased ones too.
--   $1 topic  $2 tenant  $3 key  $4 most jobs to look at
-- Answers one row: deleted; ready, how many of them were fresh; leased, how many were; looked, those that were there
-- (more than deleted: another verb changed one meanwhile, and the caller runs the statement again).
-- Locks the one that waits behind the others, as returns and enqueues do: its seq may be lower than a lease's.
-- Indexes: jobs_keyed, primary key.
WITH looked AS MATERIALIZED (
    SELECT j.seq, j.state::text IN ('ready', 'scheduled', 'blocked') AS waits FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.key = $3 AND j.tenant = $2
      AND j.state = ANY (enum_range(NULL::holdfast.job_state))
    LIMIT $4::integer
), picked AS MATERIALIZED (
    SELECT x.* FROM (SELECT l.seq FROM looked l ORDER BY l.waits, l.seq) l CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.state::text AS was, j.lease_id, j.node FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = l.seq AND j.key = $3 AND j.tenant = $2
        FOR UPDATE
    ) x
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.was, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
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
       (SELECT count(*) FROM done d WHERE d.was = 'leased') AS leased, (SELECT count(*) FROM looked) AS looked
