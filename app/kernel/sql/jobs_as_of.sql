-- Which jobs a queue had at an instant, by seq.   $1 topic  $2 topic id  $3 the instant  $4 of this state, NULL for any
-- $5 behind this seq  $6 most jobs
-- Answers a row for each: times in ms since 1970; since_ms, when it came into its state (NULL: nothing that is kept says
-- so); until_ms, of one that was leased or scheduled; node, who held it; key, of one that is
-- still there. No row: there are no more, or the instant is before its events are shown, which events_from tells.
-- The function: functions/jobs_as_of.sql. Costs what as_of does, and at most $6 jobs.   Index: lease_events_read, jobs_pkey.
SELECT a.seq, a.state, (date_part('epoch', a.began) * 1000)::bigint AS since_ms, a.deliveries,
       (date_part('epoch', a.until) * 1000)::bigint AS until_ms, a.node, k.key
FROM holdfast.jobs_as_of($1, $2::integer, $3::timestamptz, $4::text, $5::bigint, $6::integer) a
LEFT JOIN LATERAL (
    SELECT j.key FROM holdfast.jobs j WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = a.seq
) k ON true
ORDER BY a.seq
