-- Logs that have something to take out: a first record that is too old, or more than their caps.   $1 most logs
-- One row a log: its row, as get answers it.   Indexes: primary keys.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence
FROM holdfast.topics t
CROSS JOIN LATERAL (
    SELECT l.head_seq, l.earliest_seq, l.count, l.bytes FROM holdfast.log_state l
    WHERE l.topic = t.name AND l.topic_id = t.id ORDER BY l.version DESC LIMIT 1
) s
LEFT JOIN LATERAL (
    SELECT r.created_at FROM holdfast.records r
    WHERE t.ttl_ms > 0 AND r.topic = t.name AND r.seq >= s.earliest_seq AND r.seq <= s.head_seq
    ORDER BY r.seq LIMIT 1
) first ON true
WHERE t.type = 'log' AND (t.ttl_ms > 0 OR (t.discard = 'old' AND t.cap_records + t.cap_bytes > 0))
  AND (first.created_at < now() - t.ttl_ms * interval '1 ms'
       OR (t.discard = 'old' AND ((t.cap_records > 0 AND s.count > t.cap_records)
                                  OR (t.cap_bytes > 0 AND s.bytes > t.cap_bytes))))
ORDER BY t.name LIMIT $1::integer
