-- Delete a topic's counts, its groups, and notes of their jobs that have gone.   $1 topic id   Indexes: primary keys.
-- After its jobs are gone, in a later statement: verbs that their deletion waited for have added theirs by then.
WITH over AS (
    DELETE FROM holdfast.groups WHERE topic_id = $1
), freed AS (
    DELETE FROM holdfast.freed_groups WHERE topic_id = $1
)
DELETE FROM holdfast.tallies WHERE topic_id = $1
