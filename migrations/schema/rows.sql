-- Rows that must exist before the first start.

INSERT INTO holdfast.defaults DEFAULT VALUES;

INSERT INTO holdfast.topic_stats_progress (filled_to, guessed_to, marked_at, mark)
SELECT t, t, t, pg_snapshot_xmax(pg_current_snapshot()) FROM date_trunc('minute', now()) t;

-- The first days. The service creates later ones in advance.
SELECT holdfast.create_day_partitions(t, 3) FROM unnest(ARRAY['lease_events', 'archive', 'results']) t;
