-- How many of a topic's jobs were claimed, acknowledged and enqueued lately.   $1 topic id  $2 seconds
-- Answers one row; span_ms since the first claim and idle_ms since the last one in that time
-- (NULL: there was none).
-- Costs what all topics did in that time.   The function: functions/ledger.sql.   Index: lease_events_read.
SELECT r.claimed, r.acked, r.enqueued,
       (date_part('epoch', clock_timestamp() - r.first_claim) * 1000)::bigint AS span_ms,
       (date_part('epoch', clock_timestamp() - r.last_claim) * 1000)::bigint AS idle_ms
FROM holdfast.recent_events($1::integer, $2::double precision) r
