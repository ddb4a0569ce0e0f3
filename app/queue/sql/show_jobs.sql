-- Jobs as people look at them.   $1 topics  $2 their ids  $3 seqs; one each per job
-- One row a job, by its place: what there is of it; times in ms since 1970. One that is gone is left out.
-- A status is what the database's clock says, not the stored word.   Index: primary key.
SELECT l.topic, l.topic_id, s.* FROM unnest($1::text[], $2::integer[], $3::bigint[])
    WITH ORDINALITY AS l(topic, topic_id, seq, ord)
CROSS JOIN LATERAL (
    SELECT j.seq,
           CASE WHEN j.state::text IN ('failed', 'expired') THEN j.state::text
                WHEN j.state::text = 'leased' AND j.visible_at >= now() THEN 'processing'
                WHEN j.expires_at <= now() THEN 'expired'
                ELSE 'pending' END AS status,
           j.deliveries, j.priority, j.max_deliveries, j.last_error, j.tag, j.metadata, j.payload, j.content_type,
           (date_part('epoch', j.created_at) * 1000)::bigint AS created_ms,
           (date_part('epoch', j.updated_at) * 1000)::bigint AS updated_ms,
           (date_part('epoch', j.visible_at) * 1000)::bigint AS visible_ms,
           (date_part('epoch', j.expires_at) * 1000)::bigint AS expires_ms,
           j.original_topic, (date_part('epoch', j.dlq_moved_at) * 1000)::bigint AS dlq_moved_ms, j.first_topic_id,
           j.first_seq, j.key
    FROM holdfast.jobs j WHERE j.topic = l.topic AND j.topic_id = l.topic_id AND j.seq = l.seq
) s
ORDER BY l.ord
