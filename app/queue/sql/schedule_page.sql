-- A page of schedules by name, without what they put in.   $1 name prefix  $2 names after this one  $3 most rows
--   $4 only of topics whose names start with one of these; empty for all   Index: primary key.
-- Every character that a name may have sorts before '~'.
SELECT s.name, s.topic, s.cron, s.time_zone, s.missed, s.paused, s.next_fire, s.last_fire, s.last_seq, s.fires, s.error_code,
       s.error_text, s.error_at, s.created_at, s.updated_at
FROM holdfast.schedules s
WHERE s.name >= $1 AND s.name < $1 || '~' AND s.name > $2
  AND ($4::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($4::text[]) AS allowed WHERE starts_with(s.topic || '$', allowed)))
ORDER BY s.name LIMIT $3
