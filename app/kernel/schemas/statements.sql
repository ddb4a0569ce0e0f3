-- name: schema
-- The text of one version of a topic's schema.   $1 topic id  $2 version
-- Answers schema and format. No row: the topic has another version by now, or no schema.   Index: primary key.
SELECT s.schema, s.format FROM holdfast.topic_schemas s
WHERE s.topic_id = $1::integer AND s.version = $2::integer AND s.schema IS NOT NULL

-- name: schema_of
-- The schema of a topic.   $1 name
-- Answers topic, format, schema, version, updated_at. No row: it has none, or there is no such topic.
-- Indexes: primary keys.
SELECT t.name AS topic, s.format, s.schema, s.version, s.updated_at
FROM holdfast.topics t JOIN holdfast.topic_schemas s ON s.topic_id = t.id
WHERE t.name = $1 AND s.schema IS NOT NULL

-- name: schema_page
-- A page of schemas by their topics' names.
--   $1  names after this one
--   $2  most rows
--   $3  only names that start with one of these; empty for all
-- Index: primary key of topics.
SELECT t.name AS topic, s.format, s.schema, s.version, s.updated_at
FROM holdfast.topics t JOIN holdfast.topic_schemas s ON s.topic_id = t.id
WHERE t.name > $1 AND t.schema_version IS NOT NULL AND s.schema IS NOT NULL
  AND ($3::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($3::text[]) AS allowed WHERE starts_with(t.name, allowed)))
ORDER BY t.name LIMIT $2
