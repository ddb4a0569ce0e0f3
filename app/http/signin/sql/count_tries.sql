-- Count a try to sign in.   $1 a name at an address, $2 the address, digests  $3 how long tries are counted
-- $4 most tries of the name: one beyond them is not the address's any more, however many processes ask.
-- Answers a row for each that it counted: who, and how many tries there are in the time that began with the first of
-- them. The name's row is locked before the address's.   Index: primary key.
WITH name AS (
    INSERT INTO holdfast.sign_in_tries AS t (who, tries, until) VALUES ($1::bytea, 1, now() + $3::interval)
    ON CONFLICT (who) DO UPDATE
    SET tries = CASE WHEN t.until <= now() THEN 1 ELSE least(t.tries, 1000000) + 1 END,
        until = CASE WHEN t.until <= now() THEN excluded.until ELSE t.until END
    RETURNING t.who, t.tries, t.until
), address AS (
    INSERT INTO holdfast.sign_in_tries AS t (who, tries, until)
    SELECT $2::bytea, 1, now() + $3::interval FROM name n WHERE n.tries <= $4
    ON CONFLICT (who) DO UPDATE
    SET tries = CASE WHEN t.until <= now() THEN 1 ELSE least(t.tries, 1000000) + 1 END,
        until = CASE WHEN t.until <= now() THEN excluded.until ELSE t.until END
    RETURNING t.who, t.tries, t.until
)
SELECT x.who, x.tries, greatest(date_part('epoch', x.until - now()), 0) AS left_s
FROM (SELECT * FROM name UNION ALL SELECT * FROM address) x
