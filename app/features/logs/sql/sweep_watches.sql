-- Forget watches whose time has passed.   $1 most watches   Answers one row: how many.
-- Index: watches_expiring.
WITH picked AS MATERIALIZED (
    SELECT w.ctid AS tid FROM holdfast.watches w WHERE w.expires_at < now()
    ORDER BY w.expires_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.watches w USING picked p WHERE w.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone
