-- How many rows a topic's archive has, as far as they are counted.
--   $1 topic  $2 topic id  $3 how far back it goes, in ms; 0 for all  $4 most rows to count
-- Index: archive_finished.
SELECT count(*) FROM (
    SELECT 1 FROM holdfast.archive a
    WHERE a.topic = $1 AND a.topic_id = $2::integer
      AND a.finished_at >= CASE WHEN $3::bigint = 0 THEN '-infinity' ELSE now() - $3::bigint * interval '1 ms' END
    ORDER BY a.finished_at DESC, a.seq DESC LIMIT $4::integer
) one
