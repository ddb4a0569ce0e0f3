-- Keep what the service gives a topic that was left to it, for those who write in SQL.
--   $1 TTL in ms, 0 for none  $2 max_retries  $3 dlq_threshold   One row, written where it differs.
UPDATE holdfast.defaults SET ttl_ms = $1, max_retries = $2, dlq_threshold = $3
WHERE (ttl_ms, max_retries, dlq_threshold) IS DISTINCT FROM ($1, $2, $3)
