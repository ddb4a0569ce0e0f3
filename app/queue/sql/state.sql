-- What topics hold, looking at no more than $3 jobs of each.
--   $1 topics  $2 oids of their sequences; one each per topic  $3 most jobs to look at
-- One row a topic: head_seq (the last seq drawn, 0 for none), earliest_seq (NULL: empty), looked (jobs looked at), bytes
-- of their payloads, last_write_ms (when the newest was enqueued), dead_lettered.   Index: primary key.
SELECT t.topic, coalesce(pg_sequence_last_value(t.sequence::regclass), 0) AS head_seq, live.*, newest.last_write_ms,
       coalesce(stats.dead_lettered, 0) AS dead_lettered
FROM unnest($1::text[], $2::oid[]) AS t(topic, sequence)
CROSS JOIN LATERAL (
    SELECT min(seq) AS earliest_seq, count(*) AS looked, coalesce(sum(size), 0)::bigint AS bytes
    FROM (SELECT j.seq, octet_length(j.payload) AS size FROM holdfast.jobs j
          WHERE j.topic = t.topic AND j.state::text NOT IN ('failed', 'expired')
            AND (j.expires_at IS NULL OR j.expires_at > now() OR (j.state::text = 'leased' AND j.visible_at >= now()))
          ORDER BY j.seq LIMIT $3::integer) s
) live
LEFT JOIN LATERAL (
    SELECT (date_part('epoch', j.created_at) * 1000)::bigint AS last_write_ms FROM holdfast.jobs j
    WHERE j.topic = t.topic ORDER BY j.seq DESC LIMIT 1
) newest ON true
LEFT JOIN LATERAL (
    SELECT s.dead_lettered FROM holdfast.topic_stats s JOIN holdfast.topics o ON o.id = s.topic_id
    WHERE o.name = t.topic
) stats ON true
