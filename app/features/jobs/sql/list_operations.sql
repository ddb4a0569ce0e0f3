-- A topic's operations, those under way before others, the newest first. They are looked for among those of all topics
-- that are under way, and among those that ended last.
--   $1 topic  $2 most to look at of either kind  $3 most to answer
-- Rows as read_operation's.   Indexes: operations_under_way, operations_ended, primary key.
WITH looked AS MATERIALIZED (
    (SELECT o.id FROM holdfast.operations o WHERE o.ended_at IS NULL ORDER BY o.heartbeat_at DESC LIMIT $2::integer)
    UNION ALL
    (SELECT o.id FROM holdfast.operations o WHERE o.ended_at IS NOT NULL ORDER BY o.ended_at DESC LIMIT $2::integer)
)
SELECT x.* FROM looked l CROSS JOIN LATERAL (
    SELECT o.id, o.topic, o.topic_id, o.dead_topic, o.dead_id, o.state, o.reason, o.matched, o.matched_exact, o.requeued,
           o.skipped, o.failed_again, o.rate, o.filter, o.canary, o.canary_jobs, o.canary_until,
           o.canary_until < clock_timestamp() AS late, o.seqs, o.starts, o.stage, o.after_time, o.after_seq, o.until_time,
           o.cancelled, o.started_at, o.ended_at, o.actor, o.actor_name, o.address, o.cancels,
           o.gone, o.marked
    FROM holdfast.operations o WHERE o.id = l.id AND o.topic = $1
) x
ORDER BY x.ended_at IS NOT NULL, x.started_at DESC, x.id LIMIT $3::integer
