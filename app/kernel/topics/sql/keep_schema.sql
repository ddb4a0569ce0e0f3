-- Give a topic a schema, or take its schema back. The caller has locked the topic's row, or made it.
--   $1 topic id  $2 format  $3 schema; both NULL: none from now on
-- Answers one row: version and updated_at as they are now, and the version that counted before, NULL for none. Without
-- a row, nothing has changed: the topic has this schema already, or has none to be taken back.   Indexes: primary keys.
WITH given AS (
    SELECT $1::integer AS topic_id, $2::text AS format, $3::text AS schema
), was AS (
    SELECT t.schema_version FROM holdfast.topics t WHERE t.id = $1::integer
), kept AS (
    INSERT INTO holdfast.topic_schemas AS s (topic_id, format, schema)
    SELECT g.topic_id, g.format, g.schema FROM given g CROSS JOIN was
    WHERE g.schema IS NOT NULL OR was.schema_version IS NOT NULL
    ON CONFLICT (topic_id) DO UPDATE
    SET format = EXCLUDED.format, schema = EXCLUDED.schema, version = s.version + 1, updated_at = clock_timestamp()
    WHERE (s.format, s.schema) IS DISTINCT FROM (EXCLUDED.format, EXCLUDED.schema)
    RETURNING s.topic_id, s.version, s.updated_at, s.schema
), marked AS (
    UPDATE holdfast.topics t
    SET schema_version = CASE WHEN k.schema IS NULL THEN NULL ELSE k.version END,
        version = t.version + 1, updated_at = clock_timestamp()
    FROM kept k WHERE t.id = k.topic_id
)
SELECT k.version, k.updated_at, was.schema_version AS before FROM kept k CROSS JOIN was
