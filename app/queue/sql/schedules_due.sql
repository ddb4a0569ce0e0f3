-- The schedules that are due first.   $1 what time it is; NULL: ask the clock  $2 most rows
-- One row each: name, topic, the payload's size in bytes, and in how many seconds it is due, at most 0 if it is.
-- Index: schedules_due, from its start.
SELECT s.name, s.topic, octet_length(s.payload) AS size,
       extract(epoch FROM s.due_at - coalesce($1::timestamptz, clock_timestamp()))::float8 AS seconds
FROM holdfast.schedules s
WHERE s.due_at IS NOT NULL
ORDER BY s.due_at LIMIT $2
