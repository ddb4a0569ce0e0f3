-- Forget when queues were looked at, longer ago than $1, an interval: $2 rows at most.
-- Answers how many.   Index: primary key.
WITH old AS MATERIALIZED (
    SELECT l.minute FROM holdfast.depth_looks l WHERE l.minute < now() - $1::interval
    ORDER BY l.minute LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.depth_looks l USING old o WHERE l.minute = o.minute RETURNING 1
)
SELECT count(*) FROM gone
