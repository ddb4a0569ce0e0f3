-- Delete what counts topics that are gone: tallies that a statement left which was under way while its topic was deleted,
-- and buckets of tokens.
-- Answers one row: how many tallies.
WITH gone AS (
    DELETE FROM holdfast.tallies t WHERE NOT EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.id = t.topic_id)
    RETURNING 1
), emptied AS (
    DELETE FROM holdfast.buckets b WHERE NOT EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.id = b.topic_id)
)
SELECT count(*) FROM gone
