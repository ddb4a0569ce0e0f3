-- What topics hold.
--   $1 topics  $2 their ids  $3 oids of their sequences; one each per topic
--   $4 most jobs to look at that have outlived their time and are not marked yet
-- One row a topic: head_seq (the last seq drawn, 0 for none), earliest_seq (NULL: empty), count and bytes (of what is
-- not finished, and its payloads), last_write_ms (when the newest that is still there was enqueued), dead_lettered (ever), ttl_lost_to and
-- cap_lost_to (the last seqs known to be lost to age and to caps, 0 for none). A topic that was deleted is
-- left out; of one that is being deleted the end is waited for, since it may be refused as not empty.
-- Indexes: primary key of jobs, jobs_expiring, primary key of tallies.
SELECT t.topic, coalesce(pg_sequence_last_value(t.sequence::regclass), 0) AS head_seq, first.earliest_seq,
       (stored.count - stale.count)::bigint AS count, (stored.bytes - stale.bytes)::bigint AS bytes,
       newest.last_write_ms, stored.dead_lettered::bigint AS dead_lettered,
       stored.ttl_lost_to, stored.cap_lost_to
FROM unnest($1::text[], $2::integer[], $3::oid[]) AS t(topic, topic_id, sequence)
CROSS JOIN LATERAL (
    SELECT coalesce(sum(ready + scheduled + blocked + leased), 0) AS count, coalesce(sum(bytes), 0) AS bytes,
           coalesce(sum(dead_lettered), 0) AS dead_lettered,
           coalesce(max(ttl_lost_to), 0) AS ttl_lost_to, coalesce(max(cap_lost_to), 0) AS cap_lost_to
    FROM holdfast.tallies WHERE topic_id = t.topic_id
) stored
CROSS JOIN LATERAL (
    SELECT count(*) AS count, coalesce(sum(bytes), 0) AS bytes
    FROM (SELECT octet_length(j.payload) AS bytes FROM holdfast.jobs j
          WHERE j.topic = t.topic AND j.expires_at IS NOT NULL AND j.expires_at <= now()
            AND j.state IN ('ready', 'scheduled', 'blocked', 'leased') AND (j.state <> 'leased' OR j.visible_at < now())
          ORDER BY j.expires_at LIMIT $4::integer) over
) stale
LEFT JOIN LATERAL (
    SELECT j.seq AS earliest_seq FROM holdfast.jobs j
    WHERE j.topic = t.topic AND j.state::text NOT IN ('failed', 'expired')
      AND (j.expires_at IS NULL OR j.expires_at > now() OR (j.state::text = 'leased' AND j.visible_at >= now()))
    ORDER BY j.seq LIMIT 1
) first ON true
LEFT JOIN LATERAL (
    SELECT (date_part('epoch', j.created_at) * 1000)::bigint AS last_write_ms FROM holdfast.jobs j
    WHERE j.topic = t.topic ORDER BY j.seq DESC LIMIT 1
) newest ON true
WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = t.sequence)
