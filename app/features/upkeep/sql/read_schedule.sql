-- A sweep's schedule, by the database's clock; its row is made if it has none.   $1 sweep
--   $2 an interval: a process that gave no sign for so long is dead
-- Answers one row: `schedule` (NULL: the default), `due_after`, up to when scheduled times were seen to, `at`, the time,
-- and `abandoned`, whether a run was left behind.   Index: primary key.
WITH made AS (
    INSERT INTO holdfast.sweeps (name) SELECT $1 WHERE NOT EXISTS (SELECT 1 FROM holdfast.sweeps s WHERE s.name = $1)
    ON CONFLICT (name) DO NOTHING RETURNING schedule, due_after, run, finished_at, heartbeat_at
)
SELECT s.schedule, s.due_after, now() AS at,
       s.run IS NOT NULL AND s.finished_at IS NULL AND s.heartbeat_at < now() - $2::interval AS abandoned
FROM (
    SELECT schedule, due_after, run, finished_at, heartbeat_at FROM made
    UNION ALL
    SELECT o.schedule, o.due_after, o.run, o.finished_at, o.heartbeat_at FROM holdfast.sweeps o WHERE o.name = $1
) s
