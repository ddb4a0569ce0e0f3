-- An operation that this process runs, locked to the end of the transaction, with a sign of life.   $1 id  $2 owner
-- Answers one row, as read_operation does. No row: it has ended, or is another process's.   Index: primary key.
UPDATE holdfast.operations o SET heartbeat_at = clock_timestamp()
WHERE o.id = $1 AND o.owner = $2 AND o.ended_at IS NULL
RETURNING o.id, o.topic, o.topic_id, o.dead_topic, o.dead_id, o.state, o.reason, o.matched, o.matched_exact, o.requeued, o.skipped,
       o.failed_again, o.rate, o.filter, o.canary, o.canary_jobs, o.canary_until, o.canary_until < clock_timestamp() AS late,
       o.seqs, o.starts, o.stage, o.after_time, o.after_seq, o.until_time, o.cancelled, o.started_at, o.ended_at, o.actor,
       o.actor_name, o.address, o.cancels, o.gone, o.marked
