-- Delete a topic's counts.   $1 topic id   Index: primary key.
-- After its jobs are gone, in a later statement: verbs that their deletion waited for have added theirs by then.
DELETE FROM holdfast.tallies WHERE topic_id = $1
