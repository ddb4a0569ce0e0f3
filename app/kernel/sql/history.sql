-- What happened to a job, oldest first.   $1 topic id  $2 seq  $3 no earlier than this  $4 most events
-- A row for each event; `at` and `until` in ms since 1970. None: it never was, or its days were dropped.
-- The function: functions/ledger.sql.   Index: lease_events_read.
SELECT (date_part('epoch', e.at) * 1000)::bigint AS at_ms, e.event::text AS event, e.deliveries,
       (date_part('epoch', e.until) * 1000)::bigint AS until_ms, e.node, e.detail
FROM holdfast.job_events($1::integer, $2::bigint, $3::timestamptz, $4::integer) e
