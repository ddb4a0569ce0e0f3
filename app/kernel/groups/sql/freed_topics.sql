-- Which topics have groups whose next job waits to be let through?   $1 topics behind this id  $2 most topics
-- One row a topic: its name and id. One that was deleted is left out.   Index: primary key of freed_groups, entered once a
-- topic.
WITH RECURSIVE found AS (
    (SELECT f.topic_id FROM holdfast.freed_groups f WHERE f.topic_id > $1::integer ORDER BY f.topic_id LIMIT 1)
    UNION ALL
    SELECT x.topic_id FROM found CROSS JOIN LATERAL (
        SELECT f.topic_id FROM holdfast.freed_groups f WHERE f.topic_id > found.topic_id ORDER BY f.topic_id LIMIT 1
    ) x
)
SELECT t.name, t.id FROM found JOIN holdfast.topics t ON t.id = found.topic_id ORDER BY t.id LIMIT $2::integer
