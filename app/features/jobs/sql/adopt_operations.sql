-- Take over operations whose process is dead.   $1 the new owner  $2 an interval: a process that gave no sign for so long is
--   $3 most operations
-- One row each: id.   Index: operations_under_way.
WITH left_behind AS MATERIALIZED (
    SELECT o.id FROM holdfast.operations o
    WHERE o.ended_at IS NULL AND o.heartbeat_at < now() - $2::interval
    ORDER BY o.heartbeat_at LIMIT $3::integer FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.operations o SET owner = $1, heartbeat_at = clock_timestamp() FROM left_behind l WHERE o.id = l.id
RETURNING o.id
