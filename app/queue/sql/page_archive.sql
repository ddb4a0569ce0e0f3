-- A page of a topic's archive, the newest first.
--   $1 topic  $2 topic id  $3 how far back it goes, in ms; 0 for all  $4, $5 before this place: a time and a seq, or NULL
--   $6 most rows  $7 rows to skip
-- Index: archive_finished, backwards, a day after the other.
SELECT a.seq, a.created_at, a.finished_at, a.deliveries, a.key, a.content_type, a.original_topic, a.original_seq,
       a.metadata, a.payload
FROM holdfast.archive a
WHERE a.topic = $1 AND a.topic_id = $2::integer
  AND a.finished_at >= CASE WHEN $3::bigint = 0 THEN '-infinity' ELSE now() - $3::bigint * interval '1 ms' END
  AND a.finished_at <= coalesce($4::timestamptz, 'infinity')
  AND (a.finished_at, a.seq) < (coalesce($4::timestamptz, 'infinity'), coalesce($5::bigint, 0))
ORDER BY a.finished_at DESC, a.seq DESC LIMIT $6::integer OFFSET $7::bigint
