-- Where jobs are that are out, by the seqs that people know: those that they have in the topic, or had there before they
-- became dead letters.
--   $1 topic  $2 its id  $3 seqs  $4 only into topics whose names start with one of these, none for all
-- One row a job that is out: topic, topic_id, seq. One under a good lease is left out.   Indexes: primary key, jobs_first.
SELECT j.topic, j.topic_id, j.seq
FROM unnest($3::bigint[]) AS r(seq)
CROSS JOIN LATERAL (
    SELECT j.topic, j.topic_id, j.seq, j.original_topic FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.seq = r.seq AND j.topic_id = $2::integer
      AND (j.state::text IN ('failed', 'expired')
           OR (j.dlq_moved_at IS NOT NULL AND (j.state::text <> 'leased' OR j.visible_at < now())))
    UNION ALL
    SELECT j.topic, j.topic_id, j.seq, j.original_topic FROM holdfast.jobs j
    WHERE j.first_topic_id = $2::integer AND j.first_seq = r.seq AND j.original_topic = $1 AND j.dlq_moved_at IS NOT NULL
      AND (j.state::text <> 'leased' OR j.visible_at < now())
) j
WHERE cardinality($4::text[]) = 0
   OR EXISTS (SELECT 1 FROM unnest($4::text[]) AS s(s) WHERE starts_with(coalesce(j.original_topic, j.topic) || '$', s.s))
ORDER BY j.topic, j.seq
