-- name: freed_topics
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

-- name: group_topics
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

-- name: promote
-- Let the next job of groups through whose job that was out is gone.
--   $1 topic  $2 topic id  $3 oid of the topic's sequence  $4 most departures to see to
-- Answers one row: freed, how many departures were seen to; how many jobs became ready; how many scheduled, since they
-- have a delay. Waits for those who add to the same groups, up to their commits. A job that somebody has locked is left
-- for the next time. Raises when the topic was deleted meanwhile.
-- The function: functions/groups.sql. Indexes: primary keys of freed_groups and groups, jobs_blocked, jobs_group_out.
SELECT p.freed, p.ready, p.scheduled FROM holdfast.promote($1::text, $2::integer, $3::oid, $4::integer) p
