-- End an operation.   $1 id  $2 state  $3 why, or NULL  $4 how many failed again
-- Answers one row: true. No row: it has ended.   Index: primary key.
UPDATE holdfast.operations SET state = $2, reason = $3, failed_again = $4, ended_at = clock_timestamp()
WHERE id = $1 AND ended_at IS NULL RETURNING true
