-- Delete what counts topics that are gone: tallies that a statement left which was under way while its topic was deleted,
-- buckets of tokens, and groups.
-- Answers one row: how many tallies. Who folds locks them in the same order.
WITH picked AS MATERIALIZED (
    SELECT t.ctid AS tid FROM holdfast.tallies t
    WHERE NOT EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.id = t.topic_id)
    ORDER BY t.topic_id, t.id
    FOR UPDATE
), gone AS (
    DELETE FROM holdfast.tallies t USING picked p WHERE t.ctid = p.tid
    RETURNING 1
), emptied AS (
    DELETE FROM holdfast.buckets b WHERE NOT EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.id = b.topic_id)
), freed AS (
    DELETE FROM holdfast.freed_groups f WHERE NOT EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.id = f.topic_id)
), over AS (
    DELETE FROM holdfast.groups g WHERE NOT EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.id = g.topic_id)
)
SELECT count(*) FROM gone
