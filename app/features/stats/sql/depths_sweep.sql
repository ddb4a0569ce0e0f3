-- Forget what queues held longer ago than $1, an interval: $2 rows at most. The last row from before that stays, since it
-- says what was so until the next one, unless the topic is gone.
-- Answers how many. A step for each topic that has any.   Index: primary key.
WITH RECURSIVE topic AS (
    (SELECT d.topic_id FROM holdfast.depths d ORDER BY d.topic_id LIMIT 1)
    UNION ALL
    SELECT n.topic_id FROM topic t CROSS JOIN LATERAL (
        SELECT d.topic_id FROM holdfast.depths d WHERE d.topic_id > t.topic_id ORDER BY d.topic_id LIMIT 1
    ) n
), old AS MATERIALIZED (
    SELECT x.tid FROM topic t CROSS JOIN LATERAL (
        SELECT CASE WHEN EXISTS (SELECT FROM holdfast.topics p WHERE p.id = t.topic_id) THEN (
            SELECT d.minute FROM holdfast.depths d
            WHERE d.topic_id = t.topic_id AND d.minute < now() - $1::interval ORDER BY d.minute DESC LIMIT 1
        ) ELSE now() - $1::interval END AS edge
    ) e CROSS JOIN LATERAL (
        SELECT d.ctid AS tid FROM holdfast.depths d
        WHERE d.topic_id = t.topic_id AND d.minute < e.edge
        ORDER BY d.minute LIMIT $2::integer FOR UPDATE SKIP LOCKED
    ) x LIMIT $2::integer
), gone AS (
    DELETE FROM holdfast.depths d USING old o WHERE d.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone
