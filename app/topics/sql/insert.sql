-- Create a topic; a log with the state of an empty one.   $1 name  $2 its configuration as a JSON object of columns
-- Answers one row: its id. No row: a topic of this name exists.
WITH new AS (
    INSERT INTO holdfast.topics (name, type, durability, lease_ms, claim_jitter_ms, max_deliveries, max_retries, dlq_threshold,
        dead_letter, on_exhausted, ttl_ms, cap_records, cap_bytes, discard, idempotency_window_ms, dedupe_window_ms, priority,
        auto_priority, max_depth, throughput_limit, priority_order, retry_order, aging_ms, wait_goal_ms, replayable,
        replay_window_ms, result_ttl_ms, event_ttl_ms, dead_ttl_ms, auto_create, dedupe_node, leases_durable, configured, backoff,
        tenant_weights, tenant_limits, webhook, accepts, ingest, user_events)
    SELECT $1, c.type, c.durability, c.lease_ms, c.claim_jitter_ms, c.max_deliveries, c.max_retries, c.dlq_threshold,
        c.dead_letter, c.on_exhausted, c.ttl_ms, c.cap_records, c.cap_bytes, c.discard, c.idempotency_window_ms, c.dedupe_window_ms,
        c.priority, c.auto_priority, c.max_depth, c.throughput_limit, c.priority_order, c.retry_order, c.aging_ms, c.wait_goal_ms,
        c.replayable, c.replay_window_ms, c.result_ttl_ms, c.event_ttl_ms, c.dead_ttl_ms, c.auto_create, c.dedupe_node, c.leases_durable,
        c.configured, c.backoff, c.tenant_weights, c.tenant_limits, c.webhook, c.accepts, c.ingest, c.user_events
    FROM json_populate_record(NULL::holdfast.topics, $2::json) c
    ON CONFLICT (name) DO NOTHING
    RETURNING id, type
), log AS (
    INSERT INTO holdfast.log_state (topic, topic_id, version) SELECT $1, id, 1 FROM new WHERE type = 'log'
)
SELECT id FROM new
