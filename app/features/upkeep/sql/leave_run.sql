-- Leave a run to whoever wants it next.   $1 sweep  $2 the run  $3 what it has moved, NULL for no more
-- Answers one row: true. No row: another process has it already.   Index: primary key.
UPDATE holdfast.sweeps SET heartbeat_at = '-infinity', moved = coalesce($3, moved)
WHERE name = $1 AND run = $2 AND finished_at IS NULL RETURNING true
