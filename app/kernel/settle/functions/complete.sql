-- Completes a job in the caller's transaction, as app/kernel/claim/sql/ack_and_record.sql does. A second call under the
-- same lease changes nothing and raises no error, as with the statement `completed`.
CREATE OR REPLACE FUNCTION holdfast.complete(token text, result json DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    parts text[] := regexp_match(token, '^(.+):([0-9]{1,18}):lease_([0-9a-f]{32})$');
    handed_in json := CASE WHEN json_typeof(result) <> 'null' THEN result END;
    job holdfast.jobs;
    kept_ms bigint;
    completed timestamptz;
    expires timestamptz;
BEGIN
    IF parts IS NULL THEN
        RAISE EXCEPTION 'this is not the token of a claimed job' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF octet_length(handed_in::text) > 1048576 OR holdfast.json_depth(handed_in::text) > 128 THEN
        RAISE EXCEPTION 'a result can have at most 1 MiB and 128 levels'
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    PERFORM handed_in::jsonb;  -- raises an error for JSON that can be stored but not shown

    DELETE FROM holdfast.jobs j
    WHERE j.topic = parts[1] AND j.seq = parts[2]::bigint AND j.state::text = 'leased'
      AND j.lease_id = parts[3]::uuid AND j.visible_at >= clock_timestamp()
    RETURNING j.* INTO job;

    IF NOT FOUND THEN
        IF handed_in IS NOT NULL AND EXISTS (
            SELECT 1 FROM holdfast.results r JOIN holdfast.topics t ON t.name = r.topic AND t.id = r.topic_id
            WHERE r.topic = parts[1] AND r.seq = parts[2]::bigint AND r.lease_id = parts[3]::uuid
              AND (r.expires_at IS NULL OR r.expires_at > clock_timestamp())
        ) THEN
            RETURN;
        END IF;
        RAISE EXCEPTION 'the lease on job % of topic "%" has ended', parts[2], parts[1]
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;

    INSERT INTO holdfast.archive (finished_at, topic, topic_id, seq, outcome, created_at, original_seq, deliveries,
                                  max_deliveries, priority, tenant, node, tag, producer, last_error, original_topic,
                                  metadata, payload, key, content_type, first_topic_id, first_seq, grp)
    SELECT clock_timestamp(), job.topic, job.topic_id, job.seq, 'completed', job.created_at, job.original_seq,
           job.deliveries, job.max_deliveries, job.priority, job.tenant, job.node, job.tag, job.producer,
           job.last_error, job.original_topic, job.metadata, job.payload, job.key, job.content_type,
           job.first_topic_id, job.first_seq, coalesce(job.grp, job.left_grp)
    FROM holdfast.topics t WHERE t.name = job.topic AND t.id = job.topic_id AND t.replayable;

    IF handed_in IS NOT NULL THEN
        SELECT t.result_ttl_ms INTO kept_ms FROM holdfast.topics t WHERE t.name = job.topic AND t.id = job.topic_id;
        completed := clock_timestamp();
        expires := CASE WHEN kept_ms > 0 THEN completed + kept_ms * interval '1 ms' END;
        INSERT INTO holdfast.results (completed_at, expires_at, topic, topic_id, seq, first_topic_id, first_seq,
                                      lease_id, deliveries, node, result)
        VALUES (completed, expires, job.topic, job.topic_id, job.seq, job.first_topic_id, job.first_seq,
                job.lease_id, job.deliveries, job.node, handed_in);
    END IF;
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, until, began_at,
                                       tenant)
    VALUES (job.topic, job.topic_id, job.seq, 'acked', job.deliveries, job.lease_id, job.node, expires,
            job.leased_at, nullif(job.tenant, ''));

    INSERT INTO holdfast.endings (topic, topic_id, seq, event, deliveries, about)
    SELECT job.topic, job.topic_id, job.seq, 'completed', job.deliveries, holdfast.about(job)
    FROM holdfast.topics t
    WHERE t.name = job.topic AND t.id = job.topic_id
      AND (t.webhook IS NOT NULL OR job.webhook IS NOT NULL);
    INSERT INTO holdfast.tallies (topic_id, leased, bytes) VALUES (job.topic_id, -1, -octet_length(job.payload));

END $$;
