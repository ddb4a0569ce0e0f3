-- name: freed_topics
-- Topics with freed groups, whose next job has to be let through.   $1 topics after this id  $2 most topics
-- One row per topic: its name and id. Deleted topics are left out.   Index: primary key of freed_groups, entered once
-- for each topic.
WITH RECURSIVE found AS (
    (SELECT f.topic_id FROM holdfast.freed_groups f WHERE f.topic_id > $1::integer ORDER BY f.topic_id LIMIT 1)
    UNION ALL
    SELECT x.topic_id FROM found CROSS JOIN LATERAL (
        SELECT f.topic_id FROM holdfast.freed_groups f WHERE f.topic_id > found.topic_id ORDER BY f.topic_id LIMIT 1
    ) x
)
SELECT t.name, t.id FROM found JOIN holdfast.topics t ON t.id = found.topic_id ORDER BY t.id LIMIT $2::integer

-- name: group_topics
-- Topics that have groups with live jobs.   $1 most topics
-- One row per topic: its id.   Index: primary key of groups, entered once for each topic.
WITH RECURSIVE found AS (
    (SELECT g.topic_id FROM holdfast.groups g ORDER BY g.topic_id LIMIT 1)
    UNION ALL
    SELECT x.topic_id FROM found CROSS JOIN LATERAL (
        SELECT g.topic_id FROM holdfast.groups g WHERE g.topic_id > found.topic_id ORDER BY g.topic_id LIMIT 1
    ) x
)
SELECT f.topic_id FROM found f LIMIT $1::integer

-- name: promote
-- Let the next jobs of groups through whose running job has left.
--   $1  topic
--   $2  topic id
--   $3  oid of the topic's sequence
--   $4  most notes to handle
-- Answers one row: freed, how many notes were handled; ready and scheduled, how many jobs became so. Waits for
-- transactions that add to the same groups. Leaves locked jobs for the next time. Raises an error if the topic was
-- deleted meanwhile. The function: functions/groups.sql. Indexes: primary keys of freed_groups and groups,
-- jobs_blocked, jobs_group_out.
SELECT p.freed, p.ready, p.scheduled FROM holdfast.promote($1::text, $2::integer, $3::oid, $4::integer) p
