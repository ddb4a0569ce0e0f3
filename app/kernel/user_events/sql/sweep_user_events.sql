-- Forget users' events that are too old, and those beyond so many of all users.
--   $1 how long one is kept  $2 most events of all users  $3 most events of this call   Answers one row: how many.
-- Ids ascend with time, but for moments.   Index: primary key.
WITH picked AS MATERIALIZED (
    SELECT e.ctid AS tid FROM holdfast.user_events e
    WHERE e.id <= (
        SELECT max(o.id) FROM (
            SELECT x.id, x.created_at FROM holdfast.user_events x ORDER BY x.id LIMIT $3::integer
        ) o
        WHERE o.created_at < now() - $1::interval
           OR o.id <= (SELECT max(m.id) FROM holdfast.user_events m) - $2::bigint
    )
    ORDER BY e.id LIMIT $3::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.user_events d USING picked p WHERE d.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone
