-- Forget rows that were rejected long ago.   $1 for how long they are kept  $2 most rows
-- Answers one row: how many went.   Index: inbox_rejects_old.
WITH old AS MATERIALIZED (
    SELECT x.ctid AS tid FROM holdfast.inbox_rejects x WHERE x.rejected_at < now() - $1::interval
    ORDER BY x.rejected_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.inbox_rejects x USING old o WHERE x.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone
