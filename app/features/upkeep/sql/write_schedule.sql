-- Set a sweep's schedule. Times before now that it is due at count as seen to, unless it stays as it was.
--   $1 sweep  $2 the schedule, '' for none  $3 the default, which stands for a schedule that was never set
-- Answers one row: the schedule `before`, and `after`.   Index: primary key.
WITH old AS MATERIALIZED (SELECT s.schedule FROM holdfast.sweeps s WHERE s.name = $1 FOR UPDATE)
INSERT INTO holdfast.sweeps AS s (name, schedule) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE
SET schedule = excluded.schedule,
    due_after = CASE WHEN coalesce(s.schedule, $3) = excluded.schedule THEN s.due_after ELSE excluded.due_after END
RETURNING coalesce((SELECT schedule FROM old), $3) AS before, s.schedule AS after
