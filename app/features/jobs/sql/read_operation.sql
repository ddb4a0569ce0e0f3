-- An operation as it is.   $1 id   No row: there is no such operation, or it was forgotten.   Index: primary key.
SELECT o.id, o.topic, o.topic_id, o.dead_topic, o.dead_id, o.state, o.reason, o.matched, o.matched_exact, o.requeued, o.skipped,
       o.failed_again, o.rate, o.filter, o.canary, o.canary_jobs, o.canary_until, o.canary_until < clock_timestamp() AS late,
       o.seqs, o.starts, o.stage, o.after_time, o.after_seq, o.until_time, o.cancelled, o.started_at, o.ended_at, o.actor,
       o.actor_name, o.address, o.cancels, o.gone, o.marked
FROM holdfast.operations o WHERE o.id = $1
