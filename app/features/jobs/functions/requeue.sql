-- Puts dead letters, failed and expired jobs back into their topics. Locks rows by seq, like every verb, then moves them by
-- topic and key, in the order of an enqueue.
--
-- A job returns to the due part of its lane, with its old seq and position. It never becomes `ready`: only jobs at fresh
-- positions are (ADR 0012). If its topic was recreated, it gets a new seq, since another job may have the old one.
CREATE OR REPLACE FUNCTION holdfast.requeue(
    of_topic text, of_id integer, given bigint[], only_from text, starts text[], default_ttl_ms bigint
) RETURNS TABLE (
    given_seq bigint, outcome text, to_topic text, to_id integer, to_seq bigint, id_topic integer, id_seq bigint,
    was text
)
LANGUAGE plpgsql
AS $$
DECLARE
    r record;
    p record;
    kept holdfast.jobs;
    job holdfast.jobs;
    held_name text;    -- the topic of the next three
    held_id integer;   -- NULL: there is no such queue
    held_ttl bigint;
    held_sequence oid;
    n_scheduled integer := 0;
    n_blocked integer := 0;
    n_bytes bigint := 0;
    at timestamptz;
    out_states text[] := '{}';
    out_bytes bigint := 0;
    size bigint;
BEGIN
    -- Groups are locked before jobs. The job returns as blocked, and the process that unblocks its group's next job sees it.
    FOR r IN
        SELECT t.id, array_agg(coalesce(j.original_tenant, j.tenant)) AS tenants, array_agg(j.grp) AS grps
        FROM unnest(given) AS a(seq)
        CROSS JOIN LATERAL (
            SELECT coalesce(i.original_topic, i.topic) COLLATE "C" AS target, i.original_tenant, i.tenant, i.grp
            FROM holdfast.jobs i WHERE i.topic = of_topic AND i.seq = a.seq AND i.topic_id = of_id OFFSET 0
        ) j
        JOIN holdfast.topics t ON t.name = j.target AND t.type = 'queue'
        WHERE j.grp IS NOT NULL GROUP BY t.id ORDER BY t.id
    LOOP
        WITH locked AS (SELECT l.* FROM holdfast.lock_groups(r.id, r.tenants, r.grps) l)
        INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) SELECT r.id, l.tenant, l.grp FROM locked l;
    END LOOP;
    PERFORM x.seq FROM unnest(given) WITH ORDINALITY AS a(seq, ord) CROSS JOIN LATERAL (
        SELECT j.seq FROM holdfast.jobs j
        WHERE j.topic = of_topic AND j.seq = a.seq AND j.topic_id = of_id FOR UPDATE
    ) x;
    FOR r IN
        SELECT a.seq, x.target, x.tenant, x.key
        FROM unnest(given) AS a(seq)
        CROSS JOIN LATERAL (
            SELECT coalesce(j.original_topic, j.topic) COLLATE "C" AS target,
                   coalesce(j.original_tenant, j.tenant) COLLATE "C" AS tenant, j.key COLLATE "C" AS key
            FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.seq = a.seq AND j.topic_id = of_id
              AND (j.state::text IN ('failed', 'expired')
                   OR (j.original_topic IS NOT NULL AND (j.state::text <> 'leased' OR j.visible_at < now())
                       AND j.cancelled_at IS NULL))
              AND (only_from IS NULL OR j.original_topic = only_from)
              AND (cardinality(starts) = 0
                   OR EXISTS (SELECT 1 FROM unnest(starts) AS s(s)
                              WHERE starts_with(coalesce(j.original_topic, j.topic) || '$', s.s)))
            OFFSET 0
        ) x
        ORDER BY x.target, x.tenant, x.key, a.seq
    LOOP
        given_seq := r.seq;
        to_topic := r.target;
        to_id := NULL;
        to_seq := NULL;
        id_topic := NULL;
        id_seq := NULL;
        was := NULL;
        IF held_name IS DISTINCT FROM r.target THEN
            INSERT INTO holdfast.tallies (topic_id, scheduled, blocked, bytes)
            SELECT held_id, n_scheduled, n_blocked, n_bytes WHERE n_scheduled + n_blocked > 0;
            n_scheduled := 0;
            n_blocked := 0;
            n_bytes := 0;
            held_name := r.target;
            SELECT t.id, t.ttl_ms INTO held_id, held_ttl FROM holdfast.topics t
            WHERE t.name = r.target AND t.type = 'queue';
            IF held_id IS NOT NULL THEN
                -- Locks the sequence for the transaction, as nextval does, so the topic's deletion waits for it.
                -- Raises undefined_object if the topic was deleted already.
                held_sequence := to_regclass(format('holdfast.%I', 'seq_' || held_id));
                IF held_sequence IS NULL THEN
                    RAISE undefined_object USING MESSAGE = format('topic %s was deleted', r.target);
                END IF;
                PERFORM pg_sequence_last_value(held_sequence::regclass);
            END IF;
        END IF;
        IF held_id IS NULL THEN
            outcome := 'topic_gone';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF r.key IS NOT NULL THEN
            p := holdfast.lock_pending(r.target, r.tenant, r.key);
            IF p.seq IS NOT NULL THEN
                outcome := 'key_conflict';
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        DELETE FROM holdfast.jobs j WHERE j.topic = of_topic AND j.seq = r.seq RETURNING j.* INTO kept;
        at := clock_timestamp();
        size := octet_length(kept.payload);
        job := kept;
        job.topic := r.target;
        job.topic_id := held_id;
        job.tenant := r.tenant;
        IF kept.original_topic IS NOT NULL THEN
            job.max_deliveries := kept.original_max_deliveries;
            IF kept.first_topic_id = held_id THEN
                job.seq := kept.first_seq;
                job.first_topic_id := NULL;
                job.first_seq := NULL;
            ELSE
                job.seq := nextval(held_sequence::regclass);
            END IF;
            job.position := job.seq;
        ELSIF kept.ttl_ms IS NULL THEN
            job.ttl_ms := coalesce((extract(epoch FROM kept.expires_at - kept.created_at) * 1000)::bigint, 0);
        END IF;
        job.state := CASE WHEN job.grp IS NULL THEN 'scheduled' ELSE 'blocked' END;
        job.visible_at := at;
        job.expires_at := at + nullif(coalesce(job.ttl_ms, held_ttl, default_ttl_ms), 0) * interval '1 ms';
        -- With a key, the newest payload wins, so this payload must stay as old as the job.
        job.updated_at := CASE WHEN r.key IS NULL THEN at ELSE kept.created_at END;
        job.deliveries := 0;
        job.crashes := 0;
        job.refunds := 0;
        job.original_crashes := NULL;
        job.lease_id := NULL;
        job.node := NULL;
        job.leased_at := NULL;
        job.original_topic := NULL;
        job.original_seq := NULL;
        job.original_deliveries := NULL;
        job.original_tenant := NULL;
        job.original_max_deliveries := NULL;
        job.dlq_moved_at := NULL;
        INSERT INTO holdfast.lanes (topic, tenant, priority)
        SELECT job.topic, job.tenant, job.priority
        WHERE NOT EXISTS (SELECT 1 FROM holdfast.lanes l
                          WHERE l.topic = job.topic AND l.tenant = job.tenant AND l.priority = job.priority)
        ON CONFLICT DO NOTHING;
        IF NOT holdfast.put_pending(job) THEN
            INSERT INTO holdfast.jobs VALUES (kept.*);  -- another job took the key first: this one stays where it was
            outcome := 'key_conflict';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF kept.original_topic IS NOT NULL THEN
            INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
            VALUES (of_topic, of_id, kept.seq, 'requeued', kept.deliveries, kept.lease_id, kept.node,
                    'to ' || job.topic || ' ' || job.seq);
        END IF;
        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, grp, max_deliveries, tenant, until,
                                           detail)
        VALUES (job.topic, job.topic_id, job.seq, 'requeued', 0, job.grp, job.max_deliveries,
                nullif(job.tenant, ''), CASE WHEN job.grp IS NULL THEN job.visible_at END,
                CASE WHEN kept.original_topic IS NOT NULL THEN 'from ' || of_topic || ' ' || kept.seq
                     ELSE 'was ' || kept.state END);
        n_scheduled := n_scheduled + (job.grp IS NULL)::integer;
        n_blocked := n_blocked + (job.grp IS NOT NULL)::integer;
        n_bytes := n_bytes + size;
        out_states := out_states || kept.state::text;
        out_bytes := out_bytes + CASE WHEN kept.state IN ('failed', 'expired') THEN 0 ELSE size END;
        outcome := 'requeued';
        to_id := job.topic_id;
        to_seq := job.seq;
        id_topic := coalesce(job.first_topic_id, job.topic_id);
        id_seq := coalesce(job.first_seq, job.seq);
        was := kept.state;
        RETURN NEXT;
    END LOOP;
    INSERT INTO holdfast.tallies (topic_id, scheduled, blocked, bytes)
    SELECT held_id, n_scheduled, n_blocked, n_bytes WHERE n_scheduled + n_blocked > 0;
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, failed, expired, bytes)
    SELECT of_id, -count(*) FILTER (WHERE o.s = 'ready'), -count(*) FILTER (WHERE o.s = 'scheduled'),
           -count(*) FILTER (WHERE o.s = 'blocked'), -count(*) FILTER (WHERE o.s = 'leased'),
           -count(*) FILTER (WHERE o.s = 'failed'), -count(*) FILTER (WHERE o.s = 'expired'), -out_bytes
    FROM unnest(out_states) AS o(s) HAVING count(*) > 0;
END $$;
