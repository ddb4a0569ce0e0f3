-- The last run of sweeps.   $1 names   $2 an interval: a process that gave no sign for so long is dead
-- One row a sweep that has ever run: what happened, and `running`, whether its process lives.   Index: primary key.
SELECT s.name, s.run, s.started_at, s.finished_at, s.moved, s.error,
       s.finished_at IS NULL AND s.heartbeat_at >= now() - $2::interval AS running
FROM holdfast.sweeps s WHERE s.name = ANY ($1::text[]) AND s.run IS NOT NULL
