-- What was handed in when a job was completed, or the dead letter that it had become.   $1 topic  $2 topic id  $3 seq
-- A row: in which topic it was completed, when, and until when the result is kept (NULL: for ever), in ms since 1970; the
-- result; and whether it is still to be shown. None: no result is there.
-- Indexes: results_job and results_first, in each day that there is.
SELECT f.topic, (date_part('epoch', f.completed_at) * 1000)::bigint AS completed_ms,
       (date_part('epoch', f.expires_at) * 1000)::bigint AS expires_ms, f.deliveries, f.result::text AS result,
       f.expires_at IS NULL OR f.expires_at > now() AS kept
FROM (
    (SELECT r.topic, r.completed_at, r.expires_at, r.deliveries, r.result FROM holdfast.results r
     WHERE r.topic = $1 AND r.topic_id = $2::integer AND r.seq = $3::bigint
     ORDER BY r.completed_at DESC LIMIT 1)
    UNION ALL
    (SELECT r.topic, r.completed_at, r.expires_at, r.deliveries, r.result FROM holdfast.results r
     WHERE r.first_topic_id = $2::integer AND r.first_seq = $3::bigint
     ORDER BY r.completed_at DESC LIMIT 1)
) f ORDER BY f.completed_at DESC LIMIT 1
