-- Enqueues one job in the caller's transaction, with every option of the inbox. For SQL users. Returns the job's
-- message id.
CREATE OR REPLACE FUNCTION holdfast.enqueue(
    topic text, payload bytea, content_type text DEFAULT NULL, metadata jsonb DEFAULT NULL, tag text DEFAULT NULL,
    node text DEFAULT NULL, priority integer DEFAULT NULL, delay_ms bigint DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, ttl_ms bigint DEFAULT NULL, max_deliveries integer DEFAULT NULL,
    key text DEFAULT NULL, tenant text DEFAULT NULL, "group" text DEFAULT NULL, dedupe_id text DEFAULT NULL,
    user_id text DEFAULT NULL, webhook text DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    t record;
    own_id text;
    seq bigint;
BEGIN
    IF EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.name = enqueue.topic AND o.schema_version IS NOT NULL) THEN
        RAISE EXCEPTION 'topic "%" has a schema, which SQL can''t check', enqueue.topic
            USING ERRCODE = 'feature_not_supported',
            HINT = 'Insert into holdfast.inbox: the service looks at it there.';
    END IF;
    INSERT INTO holdfast.inbox (topic, payload, content_type, metadata, tag, node, priority, delay_ms, run_at,
                                ttl_ms, max_deliveries, key, tenant, "group", dedupe_id, user_id, webhook)
    VALUES (enqueue.topic, enqueue.payload, enqueue.content_type, enqueue.metadata::text, enqueue.tag,
            enqueue.node, enqueue.priority, enqueue.delay_ms, enqueue.run_at, enqueue.ttl_ms,
            enqueue.max_deliveries, enqueue.key, enqueue.tenant, enqueue."group", enqueue.dedupe_id,
            enqueue.user_id, enqueue.webhook);
    SELECT o.id, o.dedupe_window_ms AS window_ms INTO t FROM holdfast.topics o WHERE o.name = enqueue.topic;
    -- The job is the first one with its dedupe id, the waiting one with its key, or the newest.
    own_id := coalesce(enqueue.dedupe_id, CASE WHEN enqueue.topic LIKE '%.fifo'
                                               THEN encode(sha256(enqueue.payload), 'hex') END);
    IF own_id IS NOT NULL AND t.window_ms > 0 THEN
        seq := (SELECT d.seq FROM holdfast.dedupe d
                WHERE d.topic_id = t.id AND d.tenant = coalesce(enqueue.tenant, '')
                  AND d.grp = coalesce(enqueue."group", '') AND d.dedupe_id = own_id);
    ELSIF enqueue.key IS NOT NULL THEN
        seq := (SELECT j.seq FROM holdfast.jobs j
                WHERE j.topic = enqueue.topic AND j.tenant = coalesce(enqueue.tenant, '') AND j.key = enqueue.key
                  AND j.original_topic IS NULL AND j.state IN ('ready', 'scheduled', 'blocked'));
    ELSE
        seq := currval('holdfast.seq_' || t.id);
    END IF;
    RETURN holdfast.message_id(t.id, seq);
END $$;

CREATE OR REPLACE FUNCTION holdfast.enqueue(
    topic text, payload text, content_type text DEFAULT NULL, metadata jsonb DEFAULT NULL, tag text DEFAULT NULL,
    node text DEFAULT NULL, priority integer DEFAULT NULL, delay_ms bigint DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, ttl_ms bigint DEFAULT NULL, max_deliveries integer DEFAULT NULL,
    key text DEFAULT NULL, tenant text DEFAULT NULL, "group" text DEFAULT NULL, dedupe_id text DEFAULT NULL,
    user_id text DEFAULT NULL, webhook text DEFAULT NULL
) RETURNS uuid
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT holdfast.enqueue($1, convert_to($2::text, 'UTF8'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
                            $15, $16, $17)
$$;

CREATE OR REPLACE FUNCTION holdfast.enqueue(
    topic text, payload jsonb, content_type text DEFAULT NULL, metadata jsonb DEFAULT NULL, tag text DEFAULT NULL,
    node text DEFAULT NULL, priority integer DEFAULT NULL, delay_ms bigint DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, ttl_ms bigint DEFAULT NULL, max_deliveries integer DEFAULT NULL,
    key text DEFAULT NULL, tenant text DEFAULT NULL, "group" text DEFAULT NULL, dedupe_id text DEFAULT NULL,
    user_id text DEFAULT NULL, webhook text DEFAULT NULL
) RETURNS uuid
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT holdfast.enqueue($1, convert_to($2::text, 'UTF8'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
                            $15, $16, $17)
$$;
