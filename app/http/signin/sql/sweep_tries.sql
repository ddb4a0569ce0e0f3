-- Forget tries to sign in whose time is over, and beyond so many rows those that are over first.
--   $1 most rows that stay  $2 most rows of this call   Answers one row: how many.   Index: sign_in_tries_until.
WITH picked AS MATERIALIZED (
    SELECT t.ctid AS tid FROM holdfast.sign_in_tries t
    WHERE t.until <= greatest(now(), (
        SELECT o.until FROM holdfast.sign_in_tries o ORDER BY o.until DESC OFFSET $1::integer LIMIT 1))
    ORDER BY t.until LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.sign_in_tries d USING picked p WHERE d.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone
