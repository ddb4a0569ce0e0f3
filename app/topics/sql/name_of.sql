-- The name of the topic with an id.   $1 id   No row: there is no such topic any more.   Index: topics_id_key.
SELECT name FROM holdfast.topics WHERE id = $1::integer
