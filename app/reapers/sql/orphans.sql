-- Delete tallies of topics that are gone: a statement that was under way while its topic was deleted leaves some.
-- Answers one row: how many.
WITH gone AS (
    DELETE FROM holdfast.tallies t WHERE NOT EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.id = t.topic_id)
    RETURNING 1
)
SELECT count(*) FROM gone
