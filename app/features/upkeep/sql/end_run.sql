-- End a run, and keep what it has moved if it has moved something, or failed.
--   $1 sweep  $2 the run  $3 what it has moved  $4 why it failed, NULL if it did not  $5 how many runs are kept of a sweep
-- Answers one row: when. No row: another process has taken the run over.   Index: primary keys.
WITH ended AS (
    UPDATE holdfast.sweeps SET finished_at = clock_timestamp(), heartbeat_at = clock_timestamp(), moved = $3, error = $4
    WHERE name = $1 AND run = $2 AND finished_at IS NULL
    RETURNING name, run, started_at, finished_at, moved, error
), kept AS (
    INSERT INTO holdfast.sweep_runs (name, run, started_at, finished_at, moved, error)
    SELECT e.name, e.run, e.started_at, e.finished_at, e.moved, e.error FROM ended e
    WHERE e.moved > 0 OR e.error IS NOT NULL
    RETURNING name
), gone AS (
    DELETE FROM holdfast.sweep_runs r USING (
        SELECT o.finished_at, o.run FROM holdfast.sweep_runs o
        WHERE o.name = $1 ORDER BY o.finished_at DESC, o.run DESC OFFSET $5::integer - 1
    ) AS old
    WHERE r.name = $1 AND r.finished_at = old.finished_at AND r.run = old.run AND EXISTS (SELECT FROM kept)
)
SELECT e.finished_at FROM ended e
