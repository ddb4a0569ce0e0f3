-- What a scrape says of queues besides their depths.
--   $1 topics  $2 oids of their sequences; one each per topic
--   $3 most jobs to look at for the first live one  $4 most finished jobs to look at, the newest first
-- One row a queue: topic, head_seq (0: none yet), earliest_seq (NULL: no live one among those looked at) and failed (of
-- those looked at). A topic that was deleted is left out.   Indexes: primary key, jobs_finished.
SELECT t.topic, coalesce(pg_sequence_last_value(t.sequence::regclass), 0) AS head_seq, first.seq AS earliest_seq,
       ended.failed
FROM unnest($1::text[], $2::oid[]) AS t(topic, sequence)
LEFT JOIN LATERAL (
    SELECT x.seq FROM (
        SELECT j.seq, j.state::text NOT IN ('failed', 'expired')
                      AND (j.expires_at IS NULL OR j.expires_at > now()
                           OR (j.state::text = 'leased' AND j.visible_at >= now())) AS live
        FROM holdfast.jobs j WHERE j.topic = t.topic ORDER BY j.seq LIMIT $3::integer
    ) x WHERE x.live ORDER BY x.seq LIMIT 1
) first ON true
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE x.failed) AS failed FROM (
        SELECT j.state::text = 'failed' AS failed FROM holdfast.jobs j
        WHERE j.topic = t.topic AND j.state IN ('failed', 'expired') ORDER BY j.updated_at DESC LIMIT $4::integer
    ) x
) ended
WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = t.sequence)
