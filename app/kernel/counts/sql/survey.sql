-- What a scrape says of queues besides their depths.
--   $1 topics  $2 oids of their sequences  $3 their ids  $4 their dead-letter topics, or NULL; one each per topic
--   $5 most jobs to look at for the first live one  $6 most dead letters to count
-- One row a queue: topic, head_seq (0: none yet), earliest_seq (NULL: no live one among those looked at), failed (kept in
-- it) and letters (what came from it and is in its dead-letter topic, of those looked at). A topic that was deleted is
-- left out.   Indexes: primary key, primary key of tallies, jobs_failures.
SELECT t.topic, coalesce(pg_sequence_last_value(t.sequence::regclass), 0) AS head_seq, first.seq AS earliest_seq,
       stored.failed, sent.letters
FROM unnest($1::text[], $2::oid[], $3::integer[], $4::text[]) AS t(topic, sequence, topic_id, dead_letter)
LEFT JOIN LATERAL (
    SELECT x.seq FROM (
        SELECT j.seq, j.state::text NOT IN ('failed', 'expired')
                      AND (j.expires_at IS NULL OR j.expires_at > now()
                           OR (j.state::text = 'leased' AND j.visible_at >= now())) AS live
        FROM holdfast.jobs j WHERE j.topic = t.topic ORDER BY j.seq LIMIT $5::integer
    ) x WHERE x.live ORDER BY x.seq LIMIT 1
) first ON true
CROSS JOIN LATERAL (
    SELECT coalesce(sum(y.failed), 0)::bigint AS failed FROM holdfast.tallies y WHERE y.topic_id = t.topic_id
) stored
CROSS JOIN LATERAL (
    SELECT count(*) AS letters FROM (
        SELECT FROM (SELECT t.dead_letter AS topic, t.topic AS source) l JOIN holdfast.jobs j ON true
        WHERE j.topic = l.topic AND j.failed_in = l.source AND j.cluster IS NOT NULL
        ORDER BY j.cluster LIMIT $6::integer
    ) x
) sent
WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = t.sequence)
