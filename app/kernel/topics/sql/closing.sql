-- How long until nobody can take in any more jobs of a drained topic?   $1 name  $2 seconds from its drain on
-- One row: in how many ms, 0 once it is so; rows of the inbox that were taken in and wait for a look, up to 10,000.
-- No row: there is no such topic, or it is not drained.   Index: primary keys.
SELECT
    greatest(0, ceil(extract(epoch FROM t.drained_at - clock_timestamp()) * 1000 + $2::double precision * 1000))::bigint AS closes_in_ms,
    (SELECT count(*) FROM (SELECT FROM holdfast.inbox_unchecked u WHERE u.topic = t.name LIMIT 10000) x) AS unchecked
FROM holdfast.topics t
WHERE t.name = $1 AND t.draining
