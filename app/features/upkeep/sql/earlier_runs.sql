-- The runs of a sweep that moved something, or failed, the last one first.   $1 sweep  $2 most rows
-- Index: primary key, from its end.
SELECT r.name, r.run, r.started_at, r.finished_at, r.moved, r.error, false AS running
FROM holdfast.sweep_runs r WHERE r.name = $1 ORDER BY r.finished_at DESC, r.run DESC LIMIT $2
