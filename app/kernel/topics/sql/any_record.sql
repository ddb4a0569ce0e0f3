-- Does a log hold any record that is not too old?   $1 name  $2 id   Indexes: primary keys.
SELECT EXISTS (
    SELECT 1 FROM holdfast.topics t
    CROSS JOIN LATERAL (
        SELECT l.head_seq, l.earliest_seq FROM holdfast.log_state l
        WHERE l.topic = $1 AND l.topic_id = $2::integer ORDER BY l.version DESC LIMIT 1
    ) s
    JOIN LATERAL (
        SELECT 1 FROM holdfast.records r
        WHERE r.topic = $1 AND r.seq >= s.earliest_seq AND r.seq <= s.head_seq
          AND (t.ttl_ms = 0 OR r.created_at >= now() - t.ttl_ms * interval '1 ms')
        ORDER BY r.seq LIMIT 1
    ) r ON true
    WHERE t.name = $1
)
