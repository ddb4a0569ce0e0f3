-- Jobs as people look at them.   $1 topics  $2 their ids  $3 seqs; one each per job
--   $4 most bytes of payloads: it ends before the job that has more, or behind its first
-- One row a job, by its place: what there is of it; times in ms since 1970. One that is gone is left out.
-- A state is what the database's clock says, not the stored word (see explain_job); so is whether a lease has ended in a
-- crash.   Index: primary key.
SELECT p.topic, p.topic_id, p.seq, p.state, p.cancelled, p.node, p.leased_ms, p.original_seq,
       p.original_deliveries, p.deliveries, p.priority, p.max_deliveries, p.last_error, p.tag, p.metadata,
       p.payload, p.content_type, p.created_ms, p.updated_ms, p.visible_ms, p.expires_ms, p.original_topic, p.dlq_moved_ms,
       p.first_topic_id, p.first_seq, p.key, p.grp AS "group", p.tenant, p.crashes, p.original_crashes,
       p.percent, p.note, p.progress_ms
FROM (
    SELECT l.topic, l.topic_id, l.ord, s.*, sum(octet_length(s.payload)) OVER (ORDER BY l.ord) - octet_length(s.payload) AS before
    FROM unnest($1::text[], $2::integer[], $3::bigint[])
        WITH ORDINALITY AS l(topic, topic_id, seq, ord)
    CROSS JOIN LATERAL (
        SELECT j.seq,
               holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state,
               j.cancelled_at IS NOT NULL AS cancelled, j.node,
               (date_part('epoch', j.leased_at) * 1000)::bigint AS leased_ms, j.original_seq, j.original_deliveries,
               j.deliveries, j.priority, j.max_deliveries, j.last_error, j.tag, j.metadata, j.payload, j.content_type,
               (date_part('epoch', j.created_at) * 1000)::bigint AS created_ms,
               (date_part('epoch', j.updated_at) * 1000)::bigint AS updated_ms,
               (date_part('epoch', j.visible_at) * 1000)::bigint AS visible_ms,
               (date_part('epoch', j.expires_at) * 1000)::bigint AS expires_ms,
               j.original_topic, (date_part('epoch', j.dlq_moved_at) * 1000)::bigint AS dlq_moved_ms, j.first_topic_id,
               j.first_seq, j.key, coalesce(j.grp, j.left_grp) AS grp, coalesce(j.original_tenant, j.tenant) AS tenant,
               j.crashes + (j.state::text = 'leased' AND j.visible_at < now())::integer AS crashes, j.original_crashes,
               CASE WHEN j.progress_lease = j.lease_id AND j.visible_at >= now() THEN j.progress END AS percent,
               j.progress_note AS note, (date_part('epoch', j.progress_at) * 1000)::bigint AS progress_ms
        FROM holdfast.jobs j WHERE j.topic = l.topic AND j.topic_id = l.topic_id AND j.seq = l.seq
    ) s
) p
WHERE p.before < $4::bigint
ORDER BY p.ord
