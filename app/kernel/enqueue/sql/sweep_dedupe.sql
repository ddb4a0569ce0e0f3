-- Forget dedupe ids whose window has passed.   $1 most ids   Answers one row: how many.
-- Index: dedupe_expiring.
WITH picked AS MATERIALIZED (
    SELECT d.ctid AS tid FROM holdfast.dedupe d WHERE d.expires_at < now()
    ORDER BY d.expires_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.dedupe d USING picked p WHERE d.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone
