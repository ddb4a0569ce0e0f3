-- Forget idempotency keys whose window has passed.   $1 most keys   Answers one row: how many.
-- Index: idempotency_expiring.
WITH picked AS MATERIALIZED (
    SELECT k.ctid AS tid FROM holdfast.idempotency k WHERE k.expires_at < now()
    ORDER BY k.expires_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.idempotency k USING picked p WHERE k.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone
