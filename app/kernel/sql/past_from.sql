-- Since when a topic's events are shown, in ms since 1970.   $1 topic id
-- Answers one row. The function: functions/ledger.sql.   Index: topics_id_key.
SELECT (date_part('epoch', f.first_at) * 1000)::bigint AS from_ms FROM holdfast.events_from($1::integer) AS f(first_at)
