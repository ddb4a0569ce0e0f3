-- End a run.   $1 sweep  $2 the run  $3 what it has moved  $4 why it failed, NULL if it did not
-- Answers one row: when. No row: another process has taken the run over.   Index: primary key.
UPDATE holdfast.sweeps SET finished_at = clock_timestamp(), heartbeat_at = clock_timestamp(), moved = $3, error = $4
WHERE name = $1 AND run = $2 AND finished_at IS NULL RETURNING finished_at
