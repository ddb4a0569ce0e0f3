-- Forget operations that ended long ago.   $1 how long they are kept, an interval  $2 most operations
-- Answers one row: how many.   Index: operations_ended.
WITH picked AS MATERIALIZED (
    SELECT o.ctid AS tid FROM holdfast.operations o WHERE o.ended_at IS NOT NULL AND o.ended_at < now() - $1::interval
    ORDER BY o.ended_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.operations o USING picked p WHERE o.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone
