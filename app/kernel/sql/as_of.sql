-- What a queue looked like at an instant.   $1 topic  $2 topic id  $3 the instant
-- Answers one row: its jobs by state; oldest_ms, for how long the oldest of those ready could have been claimed (NULL: none,
-- or it is not known of any); from_ms, since when its events are shown, in ms since 1970: for an instant before that the
-- rest says nothing. A job counts as expired from when it was marked.
-- The function: functions/as_of.sql. Costs what happened to all topics since from_ms, or the topic's beginning, up to then,
-- and where the topic is older than that, up to now, and its jobs.   Index: lease_events_read.
SELECT a.ready, a.in_flight, a.scheduled, a.blocked, a.failed, a.expired, a.dead,
       (date_part('epoch', $3::timestamptz - a.oldest) * 1000)::bigint AS oldest_ms,
       (date_part('epoch', f.first_at) * 1000)::bigint AS from_ms
FROM holdfast.events_from($2::integer) AS f(first_at)
CROSS JOIN holdfast.as_of($1, $2::integer, $3::timestamptz) a
