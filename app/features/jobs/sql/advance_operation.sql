-- Note what a batch has done, in its transaction.   $1 id  $2 state  $3 requeued  $4 skipped  $5 failed again, in all
--   $6 stage  $7, $8 the place that it has come to: a time and a seq  $9 the first jobs, as JSON
--   $10 for how long those are waited for, in ms, NULL for as it is  $11 gone  $12 marked
-- Answers one row: true.   Index: primary key.
UPDATE holdfast.operations
SET state = $2, requeued = requeued + $3::bigint, skipped = skipped + $4::bigint, failed_again = $5, stage = $6,
    after_time = $7, after_seq = $8, canary_jobs = $9,
    gone = gone + $11::bigint, marked = marked + $12::bigint,
    canary_until = coalesce(clock_timestamp() + $10::bigint * interval '1 ms', canary_until)
WHERE id = $1 AND ended_at IS NULL RETURNING true
