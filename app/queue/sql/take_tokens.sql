-- Take tokens from a topic's bucket.   $1 topic id  $2 how many are wanted, 1 or more  $3 tokens that it earns a second
-- Answers one row: granted, whole ones, no more than there are; wait_ms until there is one more.
-- Who comes at the same time waits for the other's end: takers of one topic never take the same token.
-- A bucket that ran short less than a second ago has earned in full since then, a second's worth at most; one that had
-- enough, or was left alone for longer, holds no more than a tenth of that, and one token at least. app/topics/buckets.py
-- has the same rule.   Index: primary key.
INSERT INTO holdfast.buckets AS b (topic_id, at, tokens, granted, short)
SELECT $1::integer, clock_timestamp(), f.tokens - f.granted, f.granted, f.granted < $2::integer
FROM (
    SELECT e.tokens, least($2::integer, floor(e.tokens)) AS granted
    FROM (SELECT greatest(1, $3::double precision / 10) AS tokens) e
) f
ON CONFLICT (topic_id) DO UPDATE SET (at, tokens, granted, short) = (
    SELECT greatest(b.at, t.at), t.tokens - t.granted, t.granted, t.granted < $2::integer
    FROM (
        SELECT e.at, e.tokens, least($2::integer, floor(e.tokens)) AS granted
        FROM (
            SELECT c.at,
                   least(b.tokens + greatest(date_part('epoch', c.at - b.at), 0) * $3::double precision,
                         greatest(1, $3::double precision
                                     / CASE WHEN b.short AND c.at < b.at + interval '1 s' THEN 1 ELSE 10 END)) AS tokens
            FROM (SELECT clock_timestamp() AS at) c
        ) e
    ) t
)
RETURNING b.granted, greatest(ceil((1 - b.tokens) / $3::double precision * 1000), 0)::bigint AS wait_ms
