-- Delete dead letters whose retention has passed. What is under a good lease stays.
--   $1 topic  $2 how long they are kept, an interval  $3 most jobs to delete
-- Readers are told of those that were live. Answers one row: how many were deleted.   Index: jobs_dead.
WITH picked AS MATERIALIZED (
    SELECT ctid AS tid, j.state::text AS was, j.lease_id, j.node FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.dlq_moved_at IS NOT NULL AND j.dlq_moved_at < now() - $2::interval
      AND (j.state::text <> 'leased' OR j.visible_at < now())
    ORDER BY j.dlq_moved_at, j.seq LIMIT $3::integer FOR UPDATE SKIP LOCKED
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.was, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node)
    SELECT $1, topic_id, seq, 'deleted', deliveries, lease_id, node FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, failed, expired, bytes, ttl_lost_to)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'),
           -count(*) FILTER (WHERE was = 'failed'), -count(*) FILTER (WHERE was = 'expired'),
           -coalesce(sum(bytes) FILTER (WHERE was NOT IN ('failed', 'expired')), 0),
           max(seq) FILTER (WHERE was NOT IN ('failed', 'expired'))
    FROM done HAVING count(*) > 0
)
SELECT count(*) FROM done
