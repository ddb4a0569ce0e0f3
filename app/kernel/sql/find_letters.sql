-- Where dead letters are now.   $1 ids of the topics that they were in at first  $2 their seqs there; one each per job
-- One row a dead letter: its place in $2 (from 1), topic, topic's id and seq. One that is gone is left out.
-- Index: jobs_first. Names no topic, since it looks for one: where the table is distributed, each node is asked.
SELECT r.ord, j.topic, j.topic_id, j.seq
FROM unnest($1::integer[], $2::bigint[]) WITH ORDINALITY AS r(topic_id, seq, ord)
CROSS JOIN LATERAL (
    SELECT j.topic, j.topic_id, j.seq FROM holdfast.jobs j
    WHERE j.first_topic_id = r.topic_id AND j.first_seq = r.seq LIMIT 1
) j
