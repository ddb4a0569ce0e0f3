-- Begin a run of a sweep, unless one is under way whose process lives, or the last one is too fresh. One that was left
-- behind, by a process that died or stopped, is gone on with: it keeps its beginning and what it had moved.
--   $1 sweep  $2 the new run's id  $3 an interval: how long the last one must have ended ago, unless it failed
--   $4 an interval: a process that gave no sign for so long is dead
--   $5 NULL, or the scheduled time that this run is for: then only if nobody has seen to it, and the schedule is $6
-- Answers one row: what was moved already. No row: not now.   Index: primary key.
INSERT INTO holdfast.sweeps AS s (name, run, started_at, heartbeat_at)
VALUES ($1, $2, clock_timestamp(), clock_timestamp())
ON CONFLICT (name) DO UPDATE
SET run = excluded.run, heartbeat_at = excluded.heartbeat_at, finished_at = NULL, error = NULL,
    started_at = CASE WHEN s.run IS NULL OR s.finished_at IS NOT NULL THEN excluded.started_at ELSE s.started_at END,
    moved = CASE WHEN s.finished_at IS NULL THEN s.moved ELSE 0 END,
    due_after = coalesce($5::timestamptz, s.due_after)
WHERE (s.run IS NULL OR s.error IS NOT NULL OR s.finished_at <= now() - $3::interval
       OR (s.finished_at IS NULL AND s.heartbeat_at < now() - $4::interval)
       OR s.heartbeat_at > now() + interval '1 minute')  -- the clock was set back
  AND ($5::timestamptz IS NULL OR (s.due_after < $5 AND s.schedule IS NOT DISTINCT FROM $6::text))
RETURNING s.moved
