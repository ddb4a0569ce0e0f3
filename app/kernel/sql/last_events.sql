-- What happened to a job last, the newest first.   $1 topic id  $2 seq  $3 most events
-- Rows as those of history.   The function: functions/ledger.sql.   Index: lease_events_read.
SELECT (date_part('epoch', e.at) * 1000)::bigint AS at_ms, e.event::text AS event, e.deliveries,
       (date_part('epoch', e.until) * 1000)::bigint AS until_ms, e.node, e.detail
FROM holdfast.last_events($1::integer, $2::bigint, $3::integer) e
