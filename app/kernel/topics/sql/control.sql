-- Pause, resume or drain a topic whose row the transaction has locked.
--   $1 name  $2 paused  $3 tenants that are paused  $4 draining, since when it began
UPDATE holdfast.topics t
SET paused = $2::boolean, paused_tenants = $3::text[], draining = $4::boolean,
    drained_at = CASE WHEN $4 THEN coalesce(t.drained_at, clock_timestamp()) END, updated_at = clock_timestamp(),
    version = t.version + 1
WHERE t.name = $1
