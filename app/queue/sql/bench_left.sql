-- Forget measurements whose process has died.   $1 an interval, longer than any takes   Answers a row each: the id.
DELETE FROM holdfast.benches b WHERE b.finished_at IS NULL AND b.started_at < now() - $1::interval RETURNING b.id
