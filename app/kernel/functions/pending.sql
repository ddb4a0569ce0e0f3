-- The pending job of a key, for statements that add one. A key has at most one pending job (jobs_pending_key).

-- Locks the pending job of a key; answers NULLs if there is none. An expired pending job is marked as expired and does
-- not count, because it would take the update with it. It is lost to the queue's readers (ttl_lost_to).
CREATE OR REPLACE FUNCTION holdfast.lock_pending(
    of_topic text, of_tenant text, of_key text, OUT seq bigint, OUT state holdfast.job_state,
    OUT updated_at timestamptz, OUT deliveries integer, OUT bytes bigint
)
LANGUAGE plpgsql
AS $$
DECLARE
    id integer;
    end_at timestamptz;
BEGIN
    SELECT j.seq, j.state, j.updated_at, j.deliveries, octet_length(j.payload), j.topic_id, j.expires_at
    INTO seq, state, updated_at, deliveries, bytes, id, end_at
    FROM holdfast.jobs j
    WHERE j.topic = of_topic AND j.tenant = of_tenant AND j.key = of_key AND j.original_topic IS NULL
      AND j.state IN ('ready', 'scheduled', 'blocked')
    FOR UPDATE;
    IF end_at <= clock_timestamp() THEN
        UPDATE holdfast.jobs j SET state = 'expired', updated_at = clock_timestamp()
        WHERE j.topic = of_topic AND j.seq = lock_pending.seq;
        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, tenant)
        VALUES (of_topic, id, seq, 'expired', deliveries, nullif(of_tenant, ''));
        INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, expired, bytes, ttl_lost_to)
        VALUES (id, -(state = 'ready')::integer, -(state = 'scheduled')::integer, -(state = 'blocked')::integer, 1,
                -bytes, seq);
        seq := NULL;
    END IF;
END $$;

-- Puts a deleted job back into the table as a pending one. Answers false if its key has a pending job by now, which may
-- have been committed while this waited: an UPDATE would fail then. The job leaves its cluster of failures.
CREATE OR REPLACE FUNCTION holdfast.put_pending(job holdfast.jobs) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN job.cluster := NULL; job.failed_in := NULL; job.failed_at := NULL;
    INSERT INTO holdfast.jobs VALUES (job.*)
    ON CONFLICT (topic, tenant, key)
        WHERE key IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'blocked')
    DO NOTHING;
    RETURN FOUND;
END $$;
