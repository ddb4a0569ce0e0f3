-- The last seqs of topics that are read.   $1 logs  $2 their ids  $3 queues' ids  $4 oids of the queues' sequences
-- One row a topic: topic_id, seq (0 for none yet). A topic that was deleted is left out.   Index: primary key.
SELECT t.id AS topic_id, s.head_seq AS seq
FROM unnest($1::text[], $2::integer[]) AS t(topic, id)
CROSS JOIN LATERAL (
    SELECT l.head_seq FROM holdfast.log_state l
    WHERE l.topic = t.topic AND l.topic_id = t.id ORDER BY l.version DESC LIMIT 1
) s
UNION ALL
SELECT q.id, coalesce(pg_sequence_last_value(q.sequence::regclass), 0)
FROM unnest($3::integer[], $4::oid[]) AS q(id, sequence)
WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = q.sequence)
