-- The text of one version of a topic's schema.   $1 topic id  $2 version
-- Answers schema and format; no row: it is another version by now, or none.   Index: primary key.
SELECT s.schema, s.format FROM holdfast.topic_schemas s
WHERE s.topic_id = $1::integer AND s.version = $2::integer AND s.schema IS NOT NULL
