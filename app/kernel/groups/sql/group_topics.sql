-- Which topics have groups with live jobs?   $1 most topics
-- One row a topic: its id.   Index: primary key of groups, entered once a topic.
WITH RECURSIVE found AS (
    (SELECT g.topic_id FROM holdfast.groups g ORDER BY g.topic_id LIMIT 1)
    UNION ALL
    SELECT x.topic_id FROM found CROSS JOIN LATERAL (
        SELECT g.topic_id FROM holdfast.groups g WHERE g.topic_id > found.topic_id ORDER BY g.topic_id LIMIT 1
    ) x
)
SELECT f.topic_id FROM found f LIMIT $1::integer
