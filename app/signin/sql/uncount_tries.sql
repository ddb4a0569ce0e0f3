-- Take a try to sign in back.   $1 those for whom it was counted, digests, in the order of count_tries
-- $2 whether the first of them begins anew.   Index: primary key.
WITH picked AS MATERIALIZED (
    SELECT t.ctid AS tid, k.n FROM unnest($1::bytea[]) WITH ORDINALITY AS k(who, n)
    JOIN holdfast.sign_in_tries t ON t.who = k.who ORDER BY k.n FOR UPDATE OF t
)
UPDATE holdfast.sign_in_tries t SET tries = CASE WHEN $2 AND p.n = 1 THEN 0 ELSE greatest(t.tries - 1, 0) END
FROM picked p WHERE t.ctid = p.tid
