-- Ask an operation to end; whoever runs it does, after the batch that it is at.   $1 id
-- Answers one row: true. No row: it has ended, or was asked before.   Index: primary key.
UPDATE holdfast.operations SET cancelled = true WHERE id = $1 AND ended_at IS NULL AND NOT cancelled RETURNING true
