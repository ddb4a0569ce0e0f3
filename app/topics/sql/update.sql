-- Replace a topic's configuration, unless its type would change.   $1 name  $2 configuration as a JSON object of columns
-- Answers one row: the type it has, and the whole row as it was, as JSON. No row: there is no such topic. An equal
-- configuration changes nothing.
WITH held AS (
    SELECT t.* FROM holdfast.topics t WHERE t.name = $1 FOR UPDATE
), changed AS (
    UPDATE holdfast.topics t
    SET durability = c.durability, lease_ms = c.lease_ms, claim_jitter_ms = c.claim_jitter_ms,
        max_deliveries = c.max_deliveries, max_retries = c.max_retries, dlq_threshold = c.dlq_threshold,
        dead_letter = c.dead_letter, on_exhausted = c.on_exhausted,
        ttl_ms = c.ttl_ms, cap_records = c.cap_records, cap_bytes = c.cap_bytes, discard = c.discard,
        idempotency_window_ms = c.idempotency_window_ms, dedupe_window_ms = c.dedupe_window_ms, priority = c.priority, auto_priority = c.auto_priority,
        max_depth = c.max_depth, throughput_limit = c.throughput_limit, priority_order = c.priority_order,
        retry_order = c.retry_order, aging_ms = c.aging_ms, wait_goal_ms = c.wait_goal_ms, replayable = c.replayable,
        replay_window_ms = c.replay_window_ms, result_ttl_ms = c.result_ttl_ms, event_ttl_ms = c.event_ttl_ms, dead_ttl_ms = c.dead_ttl_ms, auto_create = c.auto_create, dedupe_node = c.dedupe_node,
        leases_durable = c.leases_durable, configured = c.configured, backoff = c.backoff,
        accepts = c.accepts, ingest = c.ingest, user_events = c.user_events,
        tenant_weights = c.tenant_weights, tenant_limits = c.tenant_limits,
        webhook = c.webhook,
        updated_at = clock_timestamp(), version = h.version + 1
    FROM held h CROSS JOIN json_populate_record(NULL::holdfast.topics, $2::json) c
    WHERE t.name = $1 AND h.type = c.type
      AND (to_jsonb(h) || $2::jsonb) <> to_jsonb(h)
)
SELECT held.type, to_json(held)::text AS before FROM held
