-- When has a topic's bucket a token?   $1 topic id  $2 tokens that it earns a second
-- Answers one row: wait_ms until there is one, by the rule of take_tokens; 0: there is, as in a bucket that nobody came to
-- yet. Takes none, and waits for nobody.   Index: primary key.
SELECT coalesce((
    SELECT greatest(ceil((1 - b.tokens) / $2::double precision * 1000
                         - greatest(date_part('epoch', clock_timestamp() - b.at), 0) * 1000), 0)::bigint
    FROM holdfast.buckets b WHERE b.topic_id = $1::integer
), 0) AS wait_ms
