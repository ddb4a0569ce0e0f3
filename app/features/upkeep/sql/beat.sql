-- Say that a run is under way, and how far it is.   $1 sweep  $2 the run  $3 what it has moved
-- Answers one row: true. No row: another process has taken the run over.   Index: primary key.
UPDATE holdfast.sweeps SET heartbeat_at = clock_timestamp(), moved = $3
WHERE name = $1 AND run = $2 AND finished_at IS NULL RETURNING true
