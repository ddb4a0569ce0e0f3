-- Lock a topic's row for its deletion.   $1 name
-- Answers its id, its type and the whole row as JSON; no row: there is no such topic.
SELECT t.id, t.type, to_json(t)::text AS before FROM holdfast.topics t WHERE t.name = $1 FOR UPDATE
