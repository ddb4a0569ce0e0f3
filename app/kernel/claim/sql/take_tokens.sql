-- Take tokens from a topic's bucket.   $1 topic id  $2 how many are wanted, 1 or more  $3 tokens that it earns a second,
-- 1 or more
-- Answers one row: granted, whole tokens, no more than there are; wait_ms until there is one more.
-- Callers wait for each other: no two ever take the same token. A bucket holds a second's worth at most, and a new one
-- is full. app/kernel/topics/buckets.py has the same rule.   Index: primary key.
INSERT INTO holdfast.buckets AS b (topic_id, at, tokens, granted)
SELECT $1::integer, clock_timestamp(), $3::double precision - f.granted, f.granted
FROM (SELECT least($2::integer, floor($3::double precision)) AS granted) f
ON CONFLICT (topic_id) DO UPDATE SET (at, tokens, granted) = (
    SELECT greatest(b.at, e.at), e.tokens - least($2::integer, floor(e.tokens)), least($2::integer, floor(e.tokens))
    FROM (
        SELECT c.at, least(b.tokens + greatest(date_part('epoch', c.at - b.at), 0) * $3::double precision,
                           $3::double precision) AS tokens
        FROM (SELECT clock_timestamp() AS at) c
    ) e
)
RETURNING b.granted, greatest(ceil((1 - b.tokens) / $3::double precision * 1000), 0)::bigint AS wait_ms
