-- Forget when a topic that is deleted was read.   $1 its id   Index: primary key.
DELETE FROM holdfast.topic_reads r WHERE r.topic_id = $1::integer
