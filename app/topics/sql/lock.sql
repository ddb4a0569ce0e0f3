-- Lock a topic's row for its deletion.   $1 name   Answers its id; no row: there is no such topic.
SELECT id FROM holdfast.topics WHERE name = $1 FOR UPDATE
