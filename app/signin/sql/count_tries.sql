-- Count a try to sign in.   $1 those whom it counts for, digests, in this order  $2 how long tries are counted
-- Answers a row for each: who, and how many tries there are in the time that began with the first of them.
-- Rows are locked in the order given: a name at an address before the address.   Index: primary key.
INSERT INTO holdfast.sign_in_tries AS t (who, tries, until)
SELECT k.who, 1, now() + $2::interval FROM unnest($1::bytea[]) WITH ORDINALITY AS k(who, n) ORDER BY k.n
ON CONFLICT (who) DO UPDATE
SET tries = CASE WHEN t.until <= now() THEN 1 ELSE least(t.tries, 1000000) + 1 END,
    until = CASE WHEN t.until <= now() THEN excluded.until ELSE t.until END
RETURNING t.who, t.tries, greatest(date_part('epoch', t.until - now()), 0) AS left_s
