-- The schema of a topic.   $1 name
-- Answers topic, format, schema, version, updated_at; no row: it has none, or there is no such topic.
-- Indexes: primary keys.
SELECT t.name AS topic, s.format, s.schema, s.version, s.updated_at
FROM holdfast.topics t JOIN holdfast.topic_schemas s ON s.topic_id = t.id
WHERE t.name = $1 AND s.schema IS NOT NULL
