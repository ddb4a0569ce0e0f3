-- Forget writes that were committed long ago.   $1 for how long they are kept  $2 most rows
-- Answers one row: how many went.   Index: writes_old.
WITH old AS MATERIALIZED (
    SELECT x.ctid AS tid FROM holdfast.writes x WHERE x.committed_at < now() - $1::interval
    ORDER BY x.committed_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.writes x USING old o WHERE x.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM gone
