-- Forget minutes of topics that are older than $1, an interval: $2 rows at most.
-- Answers how many. A step for each topic that has any.   Index: primary key.
WITH RECURSIVE topic AS (
    (SELECT s.topic_id FROM holdfast.topic_stats s ORDER BY s.topic_id LIMIT 1)
    UNION ALL
    SELECT n.topic_id FROM topic t CROSS JOIN LATERAL (
        SELECT s.topic_id FROM holdfast.topic_stats s WHERE s.topic_id > t.topic_id ORDER BY s.topic_id LIMIT 1
    ) n
), old AS MATERIALIZED (
    SELECT x.tid FROM topic t CROSS JOIN LATERAL (
        SELECT s.ctid AS tid FROM holdfast.topic_stats s
        WHERE s.topic_id = t.topic_id AND s.minute < now() - $1::interval
        ORDER BY s.minute LIMIT $2::integer FOR UPDATE SKIP LOCKED
    ) x LIMIT $2::integer
), gone AS (
    DELETE FROM holdfast.topic_stats s USING old o WHERE s.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone
