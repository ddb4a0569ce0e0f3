-- Forget replays that can't be joined any more.   $1 for how long one without progress can be joined, in ms
--   $2 most replays      Answers one row: how many.
WITH picked AS MATERIALIZED (
    SELECT r.ctid AS tid FROM holdfast.replays r WHERE r.updated_at < now() - $1::bigint * interval '1 ms'
    ORDER BY r.topic, r.topic_id, r.asked_from LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.replays r USING picked p WHERE r.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone
