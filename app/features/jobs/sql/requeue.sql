-- Give jobs that are out another life: dead letters back in their topics, failed and expired jobs where they are. Under
-- their old keys, with a whole budget and their time to live anew.
--   $1 topic that they are in  $2 its id  $3 seqs, ascending  $4 only dead letters of this topic, or NULL
--   $5 only into topics whose names, with $ behind, start with one of these, none for all  $6 the TTL in ms where nobody chose one
-- One row a job that is out: given_seq; outcome: requeued, key_conflict (a pending job has its key) or topic_gone (there
-- is no such queue); to_topic, to_id and to_seq, where it is now; id_topic and id_seq, by which its id names it; was, its
-- state before. No row: it is not out, or under a good lease, or gone.
-- Raises undefined_object, or internal_error, when a topic was deleted meanwhile.
-- The function: functions/requeue.sql. Indexes: primary key, jobs_pending_key.
SELECT q.given_seq, q.outcome, q.to_topic, q.to_id, q.to_seq, q.id_topic, q.id_seq, q.was
FROM holdfast.requeue($1::text, $2::integer, $3::bigint[], $4::text, $5::text[], $6::bigint) q
