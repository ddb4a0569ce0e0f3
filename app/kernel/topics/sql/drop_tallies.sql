-- Delete a topic's counts, its groups, and notes of their jobs that have gone.   $1 topic id   Indexes: primary keys.
-- After its jobs are gone, in a later statement: verbs that their deletion waited for have added theirs by then.
-- Who folds locks tallies in the same order.
WITH over AS (
    DELETE FROM holdfast.groups WHERE topic_id = $1
), freed AS (
    DELETE FROM holdfast.freed_groups WHERE topic_id = $1
), picked AS MATERIALIZED (
    SELECT t.ctid AS tid FROM holdfast.tallies t WHERE t.topic_id = $1 ORDER BY t.id FOR UPDATE
)
DELETE FROM holdfast.tallies t USING picked p WHERE t.ctid = p.tid
