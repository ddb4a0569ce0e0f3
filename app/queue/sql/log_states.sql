-- How far logs go.   $1 topics  $2 topic ids; one each per topic
-- One row a log: topic, head_seq, earliest_seq (head_seq + 1: empty), count, bytes, last_write_ms (NULL: never written).
-- A topic that was deleted is left out.   Index: primary key, from its end: see migration 0005.
SELECT t.topic, s.head_seq, s.earliest_seq, s.count, s.bytes, s.last_write_ms
FROM unnest($1::text[], $2::integer[]) AS t(topic, id)
CROSS JOIN LATERAL (
    SELECT l.head_seq, l.earliest_seq, l.count, l.bytes,
           (date_part('epoch', l.written_at) * 1000)::bigint AS last_write_ms
    FROM holdfast.log_state l WHERE l.topic = t.topic AND l.topic_id = t.id ORDER BY l.version DESC LIMIT 1
) s
