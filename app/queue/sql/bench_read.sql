-- Measurements that have ended, the last one first, as many as are kept.
SELECT b.id, b.started_at, b.finished_at, b.actor, b.version, b.figures
FROM holdfast.benches b WHERE b.finished_at IS NOT NULL ORDER BY b.started_at DESC
