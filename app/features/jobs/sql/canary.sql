-- What became of jobs that were requeued first.   $1 JSON: a list of {topic, topic_id, seq, id_topic, id_seq}
-- Answers one row: failed, how many are out again; gone, how many came to their end otherwise: acknowledged, as a rule.
-- The others wait or are being worked on. Indexes: primary key, jobs_first; it names all topics, as find_letters does.
SELECT count(*) FILTER (WHERE here.out OR (here.out IS NULL AND dead.seq IS NOT NULL)) AS failed,
       count(*) FILTER (WHERE here.out IS NULL AND dead.seq IS NULL) AS gone
FROM json_to_recordset($1::json) AS c(topic text, topic_id integer, seq bigint, id_topic integer, id_seq bigint)
LEFT JOIN LATERAL (
    SELECT j.state::text IN ('failed', 'expired') AS out FROM holdfast.jobs j
    WHERE j.topic = c.topic AND j.seq = c.seq AND j.topic_id = c.topic_id
) here ON true
LEFT JOIN LATERAL (
    SELECT j.seq FROM holdfast.jobs j
    WHERE j.first_topic_id = c.id_topic AND j.first_seq = c.id_seq AND j.dlq_moved_at IS NOT NULL LIMIT 1
) dead ON true
