-- Take a try to sign in back.   $1 those for whom it was counted, digests: a name at an address, and the address
-- $2 whether the first of them begins anew.   Index: primary key.
-- Changes by key, not by ctid: who waited for another's count has to change the row as that one left it.
WITH picked AS MATERIALIZED (
    SELECT t.who, k.n FROM unnest($1::bytea[]) WITH ORDINALITY AS k(who, n)
    JOIN holdfast.sign_in_tries t ON t.who = k.who ORDER BY k.n FOR UPDATE OF t
)
UPDATE holdfast.sign_in_tries t SET tries = CASE WHEN $2 AND p.n = 1 THEN 0 ELSE greatest(t.tries - 1, 0) END
FROM picked p WHERE t.who = p.who
