-- A page of schemas by their topics' names.   $1 names after this one  $2 most rows
--   $3 only names that start with one of these; empty for all   Index: primary key of topics.
SELECT t.name AS topic, s.format, s.schema, s.version, s.updated_at
FROM holdfast.topics t JOIN holdfast.topic_schemas s ON s.topic_id = t.id
WHERE t.name > $1 AND t.schema_version IS NOT NULL AND s.schema IS NOT NULL
  AND ($3::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($3::text[]) AS allowed WHERE starts_with(t.name, allowed)))
ORDER BY t.name LIMIT $2
