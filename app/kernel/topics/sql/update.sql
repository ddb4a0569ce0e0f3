-- Replace a topic's configuration, unless its type would change.   $1 name  $2 configuration as a JSON object of
-- columns Answers one row: the topic's type, and its whole row before the change as JSON. No row: there is no such
-- topic. An equal configuration changes nothing.   {settings} and {chosen} are the columns of settings.py
WITH held AS (
    SELECT t.* FROM holdfast.topics t WHERE t.name = $1 FOR UPDATE
), changed AS (
    UPDATE holdfast.topics t
    SET ({settings}) = ROW({chosen}), updated_at = clock_timestamp(), version = h.version + 1
    FROM held h CROSS JOIN json_populate_record(NULL::holdfast.topics, $2::json) c
    WHERE t.name = $1 AND h.type = c.type
      AND (to_jsonb(h) || $2::jsonb) <> to_jsonb(h)
)
SELECT held.type, to_json(held)::text AS before FROM held
