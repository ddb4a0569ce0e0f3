-- A page of all topics' jobs, newest first.   $1 most jobs  $2 leave out so many first  $3 both together
-- One row a job: its topic, the topic's id and its seq. What is on the page is among the $3 newest of the $3 topics that
-- have the newest.   Index: primary keys.
WITH t AS MATERIALIZED (
    SELECT l.topic, newest.created_at
    FROM (SELECT name AS topic FROM holdfast.topics WHERE type = 'queue') l
    CROSS JOIN LATERAL (
        SELECT j.created_at FROM holdfast.jobs j WHERE j.topic = l.topic ORDER BY j.seq DESC LIMIT 1
    ) newest
    ORDER BY newest.created_at DESC LIMIT $3::integer
)
SELECT f.topic, f.topic_id, f.seq FROM t CROSS JOIN LATERAL (
    SELECT j.topic, j.topic_id, j.seq, j.created_at FROM holdfast.jobs j WHERE j.topic = t.topic
    ORDER BY j.seq DESC LIMIT $3::integer
) f
ORDER BY f.created_at DESC, f.topic, f.seq DESC LIMIT $1::integer OFFSET $2::integer
