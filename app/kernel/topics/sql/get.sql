-- A topic's row, and the oid of its sequence.   $1 name   No row: there is no such topic.
-- The sequence is named by the topic's id; its oid is looked up, since a restored backup has others.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t WHERE t.name = $1
