-- Delete jobs that ended as failed or expired and whose retention has passed.
--   $1 topic  $2 how long they are kept, an interval  $3 most jobs to delete
-- Answers one row: how many were deleted.   Index: jobs_finished.
WITH picked AS MATERIALIZED (
    SELECT ctid AS tid, j.state::text AS was FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.state IN ('failed', 'expired') AND j.updated_at < now() - $2::interval
    ORDER BY j.updated_at LIMIT $3::integer FOR UPDATE SKIP LOCKED
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid RETURNING p.was, j.topic_id, j.seq, j.deliveries
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, detail)
    SELECT $1, topic_id, seq, 'deleted', deliveries, 'was ' || was FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, failed, expired)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'failed'), -count(*) FILTER (WHERE was = 'expired')
    FROM done HAVING count(*) > 0
)
SELECT count(*) FROM done
