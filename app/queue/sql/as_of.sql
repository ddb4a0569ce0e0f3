-- What a queue looked like at an instant.   $1 topic  $2 topic id  $3 the instant
-- Answers one row: its jobs by state; oldest_ms, for how long the oldest of those ready could have been claimed (NULL: none);
-- from_ms, since when events are kept, in ms since 1970. A job counts as expired from when it was marked.
-- The function is in migration 0027. Costs what happened to the topic up to then.   Index: lease_events_read.
SELECT a.ready, a.in_flight, a.scheduled, a.blocked, a.failed, a.expired, a.dead,
       (date_part('epoch', $3::timestamptz - a.oldest) * 1000)::bigint AS oldest_ms,
       (date_part('epoch', p.first_day AT TIME ZONE 'UTC') * 1000)::bigint AS from_ms
FROM holdfast.as_of($1, $2::integer, $3::timestamptz) a
CROSS JOIN (
    SELECT min(to_timestamp(right(c.relname, 8), 'YYYYMMDD')::date)::timestamp AS first_day
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'holdfast.lease_events'::regclass
) p
