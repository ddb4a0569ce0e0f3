-- Leave an operation to another process.   $1 id  $2 owner
-- Answers one row: true. No row: it has ended, or is another's already.   Index: primary key.
UPDATE holdfast.operations SET heartbeat_at = '-infinity' WHERE id = $1 AND owner = $2 AND ended_at IS NULL
RETURNING true
