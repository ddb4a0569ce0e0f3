-- Say that minutes are told before $1, and guessed before $2, and set a new mark if the old one has been reached ($3).
-- Transactions from the mark on got their ids after this statement began, and an id comes before an event's time; the
-- 2 s are for who was stopped between the two.
UPDATE holdfast.topic_stats_progress
SET filled_to = $1, guessed_to = greatest(guessed_to, $2::timestamptz),
    marked_at = CASE WHEN $3::boolean THEN statement_timestamp() - interval '2 s' ELSE marked_at END,
    mark = CASE WHEN $3::boolean THEN pg_snapshot_xmax(pg_current_snapshot()) ELSE mark END
