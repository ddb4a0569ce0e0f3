-- A page of a topic's archive, the newest first.
--   $1 topic  $2 topic id  $3 how far back it goes, in ms; 0 for all  $4, $5 before this place: a time and a seq, or NULL
--   $6 most rows  $7 rows to skip  $8 most bytes of payloads: a page ends before the row that has more, or behind its first
-- `more`: another row follows. Index: archive_finished, backwards, a day after the other.
SELECT p.seq, p.created_at, p.finished_at, p.deliveries, p.key, p.content_type, p.original_topic, p.original_seq,
       p.first_topic_id, p.first_seq, p.metadata, p.payload, p.more
FROM (
    SELECT x.*, lead(x.seq) OVER newest IS NOT NULL AS more, row_number() OVER newest AS place,
           sum(octet_length(x.payload)) OVER newest - octet_length(x.payload) AS before
    FROM (
        SELECT a.* FROM holdfast.archive a
        WHERE a.topic = $1 AND a.topic_id = $2::integer
          AND a.finished_at >= CASE WHEN $3::bigint = 0 THEN '-infinity' ELSE now() - $3::bigint * interval '1 ms' END
          AND a.finished_at <= coalesce($4::timestamptz, 'infinity')
          AND (a.finished_at, a.seq) < (coalesce($4::timestamptz, 'infinity'), coalesce($5::bigint, 0))
        ORDER BY a.finished_at DESC, a.seq DESC LIMIT $6::integer + 1 OFFSET $7::bigint
    ) x
    WINDOW newest AS (ORDER BY x.finished_at DESC, x.seq DESC)
) p
WHERE p.place <= $6::integer AND p.before < $8::bigint
ORDER BY p.finished_at DESC, p.seq DESC
