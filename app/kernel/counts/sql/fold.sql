-- Fold topics' tallies into one row each.   $1 topic ids  $2 fold what lies above this id; one each per topic
--   $3 and not above this one
-- Answers nothing. Counts are summed, and of what was lost the last seqs stay. Takes only what it deleted itself: whoever
-- folds at the same time waits, and finds it gone. All lock by topic id and id, as drop_tallies and orphans do.
-- When it has committed, no row with an id from $2 to $3 is left, if none with such an id was under way.
-- Index: primary key of tallies.
WITH picked AS MATERIALIZED (
    SELECT x.tid
    FROM (SELECT f.topic_id, f.low FROM unnest($1::integer[], $2::bigint[]) AS f(topic_id, low) ORDER BY f.topic_id) f
    CROSS JOIN LATERAL (
        SELECT t.ctid AS tid FROM holdfast.tallies t
        WHERE t.topic_id = f.topic_id AND t.id > f.low AND t.id <= $3::bigint
        ORDER BY t.id
        FOR UPDATE
    ) x
), gone AS (
    DELETE FROM holdfast.tallies t USING picked p WHERE t.ctid = p.tid
    RETURNING t.topic_id, t.ready, t.scheduled, t.blocked, t.leased, t.dead_lettered, t.bytes,
        t.failed, t.expired, t.ttl_lost_to, t.cap_lost_to
)
INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, dead_lettered, bytes,
                               failed, expired, ttl_lost_to, cap_lost_to)
SELECT topic_id, sum(ready), sum(scheduled), sum(blocked), sum(leased), sum(dead_lettered), sum(bytes),
       sum(failed), sum(expired), max(ttl_lost_to), max(cap_lost_to)
FROM gone GROUP BY topic_id
