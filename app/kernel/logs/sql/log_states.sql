-- How far logs go.   $1 topics  $2 topic ids  $3 their TTLs in ms, 0 for none; one each per topic
--   $4 most records of each to look at that are too old and have not been taken out yet
-- One row a log: topic, head_seq, earliest_seq (of what is not too old, as in read_records; head_seq + 1: nothing), count
-- and bytes (without what is too old), last_write_ms (NULL: never written). A topic that was deleted is left out.
-- Indexes: primary keys; of the state from its end.
SELECT t.topic, s.head_seq, CASE WHEN t.ttl_ms = 0 THEN s.earliest_seq ELSE coalesce(first.seq, s.head_seq + 1) END
           AS earliest_seq,
       s.count - stale.count AS count, (s.bytes - stale.bytes)::bigint AS bytes, s.last_write_ms
FROM unnest($1::text[], $2::integer[], $3::bigint[]) AS t(topic, id, ttl_ms)
CROSS JOIN LATERAL (
    SELECT l.head_seq, l.earliest_seq, l.count, l.bytes,
           (date_part('epoch', l.written_at) * 1000)::bigint AS last_write_ms
    FROM holdfast.log_state l WHERE l.topic = t.topic AND l.topic_id = t.id ORDER BY l.version DESC LIMIT 1
) s
LEFT JOIN LATERAL (
    SELECT r.seq FROM holdfast.records r
    WHERE t.ttl_ms > 0 AND r.topic = t.topic AND r.seq >= s.earliest_seq AND r.seq <= s.head_seq
      AND r.created_at >= now() - t.ttl_ms * interval '1 ms'
    ORDER BY r.seq LIMIT 1
) first ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS count, coalesce(sum(o.size), 0) AS bytes FROM (
        SELECT octet_length(r.payload) + coalesce(octet_length(r.metadata::text), 0) AS size FROM holdfast.records r
        WHERE t.ttl_ms > 0 AND r.topic = t.topic AND r.seq >= s.earliest_seq
          AND r.seq < coalesce(first.seq, s.head_seq + 1)
        ORDER BY r.seq LIMIT $4::integer
    ) o
) stale
