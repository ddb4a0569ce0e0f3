-- Delete jobs that were marked as expired, however long ago, going through those that ended by the time of their end.
--   $1 topic  $2 those after this time  $3 and, at this time, after this seq  $4 most jobs to look at, failed ones too
-- Answers one row: how many were deleted; and of those looked at the last one's time and seq, NULL at the end.
-- Index: jobs_finished.
WITH picked AS MATERIALIZED (
    SELECT ctid AS tid, j.state::text AS was, j.updated_at, j.seq FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.state IN ('failed', 'expired')
      AND j.updated_at >= $2::timestamptz AND (j.updated_at, j.seq) > ($2::timestamptz, $3::bigint)
    ORDER BY j.updated_at, j.seq LIMIT $4::integer FOR UPDATE SKIP LOCKED
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid AND p.was = 'expired'
    RETURNING j.topic_id, j.seq, j.deliveries
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, detail)
    SELECT $1, topic_id, seq, 'deleted', deliveries, 'was expired' FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, expired) SELECT min(topic_id), -count(*) FROM done HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM done) AS deleted, (SELECT max(updated_at) FROM picked) AS last_at,
       (SELECT p.seq FROM picked p ORDER BY p.updated_at DESC, p.seq DESC LIMIT 1) AS last_seq
