-- The delay after the n-th delivery, in ms. It can't overflow: n stops counting once any base has reached the longest
-- cap.
CREATE OR REPLACE FUNCTION holdfast.backoff_ms(policy json, deliveries integer) RETURNS bigint
LANGUAGE sql PARALLEL SAFE
AS $$
    SELECT (least((policy->>'cap_ms')::float8,
                  (policy->>'base_ms')::float8
                  * CASE policy->>'kind' WHEN 'fixed' THEN 1 WHEN 'linear' THEN deliveries
                                         WHEN 'exponential' THEN 2 ^ least(deliveries - 1, 30) ELSE 0 END)
            * (1 - random() * CASE policy->>'jitter' WHEN 'full' THEN 1 WHEN 'equal' THEN 0.5 ELSE 0 END))::bigint
$$;

-- The facts about a job that a webhook sends, with the job's own URL. A dead letter's URL is not used.
CREATE OR REPLACE FUNCTION holdfast.about(job holdfast.jobs) RETURNS json
LANGUAGE sql STABLE
AS $$
    SELECT json_build_object(
        'url', CASE WHEN job.original_topic IS NULL THEN job.webhook END, 'tag', job.tag, 'meta', job.metadata,
        'first_topic_id', job.first_topic_id, 'first_seq', job.first_seq)
$$;

-- Trigger of holdfast.endings: makes a delivery, which is a job of the service's own topic, for an ending that has a
-- webhook. The row itself is never stored (docs/adr/0041).
CREATE OR REPLACE FUNCTION holdfast.tell() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    hook jsonb := (SELECT t.webhook FROM holdfast.topics t WHERE t.id = NEW.topic_id);
    url text := NEW.about->>'url';
    own integer;
    drawn bigint;
    at timestamptz;
    told_id uuid;
    body text;
    content bytea;
BEGIN
    IF url IS NULL AND hook->'on' ? NEW.event THEN
        url := hook->>'url';
    END IF;
    IF url IS NULL OR NEW.topic = 'holdfast.webhooks' THEN  -- the deliveries' own endings have no webhooks
        RETURN NULL;
    END IF;
    SELECT t.id INTO own FROM holdfast.topics t WHERE t.name = 'holdfast.webhooks';
    IF NOT FOUND THEN
        INSERT INTO holdfast.topics (name, type, durability, max_deliveries, on_exhausted, backoff, configured)
        VALUES ('holdfast.webhooks', 'queue', 'fsync', 20, 'fail',
                '{"kind": "exponential", "base_ms": 1000, "cap_ms": 14400000, "jitter": "equal"}', false)
        ON CONFLICT (name) DO NOTHING RETURNING id INTO own;
        IF FOUND THEN
            PERFORM holdfast.create_topic_sequence(own);
            INSERT INTO holdfast.lanes (topic, tenant, priority) VALUES ('holdfast.webhooks', '', 0)
            ON CONFLICT DO NOTHING;
        ELSE
            SELECT t.id INTO own FROM holdfast.topics t WHERE t.name = 'holdfast.webhooks';
        END IF;
    END IF;
    drawn := nextval(('holdfast.seq_' || own)::regclass);
    at := clock_timestamp();
    told_id := holdfast.message_id(coalesce((NEW.about->>'first_topic_id')::integer, NEW.topic_id),
                                   coalesce((NEW.about->>'first_seq')::bigint, NEW.seq));
    -- As text: jsonb refuses some numbers that json accepts, and a job must be able to end whatever its meta is.
    body := '{' || concat_ws(',',
        '"event":' || to_json(NEW.event), '"topic":' || to_json(NEW.topic), '"seq":' || NEW.seq,
        '"id":' || to_json(told_id), '"deliveries":' || NEW.deliveries,
        '"at":' || to_json(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')),
        '"error":' || to_json(NEW.error),
        '"tag":' || CASE WHEN NEW.about->>'tag' IS NOT NULL THEN NEW.about->'tag' END,
        '"meta":' || CASE WHEN NEW.about->>'meta' IS NOT NULL THEN NEW.about->'meta' END) || '}';
    content := convert_to(json_build_object('url', url, 'topic', NEW.topic, 'topic_id', NEW.topic_id,
                                            'body', body::json)::text, 'UTF8');
    INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, visible_at, created_at, updated_at, tag,
                               payload)
    VALUES ('holdfast.webhooks', own, drawn, drawn, 'ready', at, at, at, NEW.topic, content);
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries)
    VALUES ('holdfast.webhooks', own, drawn, 'enqueued', 0);
    INSERT INTO holdfast.tallies (topic_id, ready, bytes) VALUES (own, 1, octet_length(content));
    RETURN NULL;
END $$;
