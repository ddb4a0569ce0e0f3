-- The names of the topics with these ids.   $1 ids
-- One row a topic: id and name. One that there is not any more is left out.   Index: topics_id_key.
SELECT t.id, t.name FROM unnest($1::integer[]) AS given(id) JOIN holdfast.topics t ON t.id = given.id
