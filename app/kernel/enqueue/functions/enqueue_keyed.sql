-- Enqueues jobs with keys, groups, or both. Locks first the groups, then the keys, each in the same order for all
-- callers, so a caller that waits holds only rows that come before. `keys` and `grps` have an entry for each payload,
-- NULL for a job without one.
CREATE OR REPLACE FUNCTION holdfast.enqueue_keyed(
    of_topic text, of_id integer, sequence oid, payloads bytea[], tags text[], producers text[], metadata json[],
    tenants text[], priorities smallint[], delays_ms bigint[], run_ats timestamptz[], ttls_ms bigint[],
    limits integer[], types text[], keys text[], topic_ttl_ms bigint, ends boolean, most_deliveries integer,
    grps text[] DEFAULT '{}'::text[], OUT seqs bigint[], OUT updated boolean[], OUT head_seq bigint,
    OUT ready integer, OUT due integer, OUT touched integer
)
LANGUAGE plpgsql
AS $$
DECLARE
    at timestamptz;
    drawn bigint[];
    lasts boolean[];
    r record;
    p record;
    job holdfast.jobs;
    lease uuid;
    holder text;
    starts timestamptz;
    changed boolean;
    fresh_tenants text[] := '{}';  -- groups without a live job: the first job of each does not wait
    fresh_grps text[] := '{}';
    place holdfast.job_state;
    n_ready integer := 0;
    n_scheduled integer := 0;
    n_blocked integer := 0;
    n_leased integer := 0;
    n_bytes bigint := 0;
BEGIN
    -- Locks the sequence until the end of the transaction, as nextval does, so the topic's deletion waits.
    head_seq := coalesce(pg_sequence_last_value(sequence::regclass), 0);
    at := clock_timestamp();  -- read after the lock: no job gets a time from before it (ADR 0012)
    ready := 0;
    due := 0;
    touched := 0;
    -- Groups are locked before seqs are drawn, so the seqs of a group are drawn and committed in one order.
    IF cardinality(grps) > 0 THEN
        SELECT coalesce(array_agg(l.tenant), '{}'), coalesce(array_agg(l.grp), '{}')
        INTO fresh_tenants, fresh_grps
        FROM holdfast.lock_groups(of_id, tenants, grps) l WHERE l.fresh;
    END IF;
    -- Draws seqs in the order of the batch, for all jobs that look new.
    SELECT array_agg(d.seq ORDER BY d.ord), array_agg(d.is_last ORDER BY d.ord) INTO drawn, lasts
    FROM (
        SELECT b.ord, b.is_last,
               CASE WHEN b.key IS NULL OR (b.is_last AND known.seq IS NULL) THEN nextval(sequence::regclass) END
                   AS seq
        FROM (
            SELECT u.key, coalesce(u.tenant, '') AS tenant, u.ord,
                   u.ord = max(u.ord) OVER (PARTITION BY coalesce(u.tenant, ''), u.key) AS is_last
            FROM unnest(keys, tenants) WITH ORDINALITY AS u(key, tenant, ord)
            ORDER BY u.ord
        ) b
        LEFT JOIN LATERAL (
            SELECT j.seq FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.tenant = b.tenant AND j.key = b.key AND j.original_topic IS NULL
              AND j.state IN ('ready', 'scheduled', 'blocked')
            LIMIT 1
        ) known ON true
    ) d;
    seqs := array_fill(NULL::bigint, ARRAY[cardinality(keys)]);
    updated := array_fill(false, ARRAY[cardinality(keys)]);
    FOR r IN
        SELECT u.payload, u.tag, u.producer, u.meta, coalesce(u.tenant, '') COLLATE "C" AS tenant, u.priority,
               greatest(u.run_at, at + u.delay_ms * interval '1 ms') AS starts_at,
               at + nullif(coalesce(u.ttl_ms, topic_ttl_ms), 0) * interval '1 ms' AS ends_at,
               u.most, u.key COLLATE "C" AS key, u.type, u.grp,
               f.fresh IS TRUE
                   AND u.ord = min(u.ord) OVER (PARTITION BY coalesce(u.tenant, ''), u.grp) AS leads,
               u.ord
        FROM unnest(payloads, tags, producers, metadata, tenants, priorities, delays_ms, run_ats, ttls_ms, limits,
                    types, keys, grps)
            WITH ORDINALITY AS u(payload, tag, producer, meta, tenant, priority, delay_ms, run_at, ttl_ms, most,
                                 type, key, grp, ord)
        LEFT JOIN LATERAL (
            SELECT g.fresh FROM holdfast.groups g
            WHERE g.topic_id = of_id AND g.tenant = coalesce(u.tenant, '') AND g.grp = u.grp
            LIMIT 1
        ) f ON true
        WHERE u.key IS NULL OR lasts[u.ord]
        ORDER BY 5, 10, u.ord
    LOOP
        starts := CASE WHEN r.starts_at > at THEN r.starts_at END;
        place := CASE WHEN r.grp IS NOT NULL AND NOT r.leads THEN 'blocked'
                      WHEN starts IS NULL THEN 'ready' ELSE 'scheduled' END;
        FOR attempt IN 1..100 LOOP
            changed := false;
            IF r.key IS NOT NULL THEN
                p := holdfast.lock_pending(of_topic, r.tenant, r.key);
                IF p.seq IS NOT NULL THEN
                    UPDATE holdfast.jobs j
                    SET payload = r.payload, content_type = r.type, metadata = r.meta,
                        updated_at = clock_timestamp()
                    WHERE j.topic = of_topic AND j.seq = p.seq;
                    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries)
                    VALUES (of_topic, of_id, p.seq, 'updated', p.deliveries);
                    n_bytes := n_bytes + octet_length(r.payload) - p.bytes;
                    touched := touched + 1;
                    seqs[r.ord] := p.seq;
                    updated[r.ord] := true;
                    EXIT;
                END IF;
                -- A job whose lease has ended counts as pending, unless it has no deliveries left. A locked one is
                -- being claimed or settled. Waiting for it could deadlock, since the verbs of lease holders lock by
                -- seq and not by key.
                SELECT j.* INTO job FROM holdfast.jobs j
                WHERE j.topic = of_topic AND j.state = 'leased' AND j.tenant = r.tenant AND j.key = r.key
                  AND j.original_topic IS NULL AND j.visible_at < clock_timestamp()
                  AND (j.expires_at IS NULL OR j.expires_at > clock_timestamp())
                  AND NOT (ends AND coalesce(j.max_deliveries, most_deliveries) > 0
                           AND j.deliveries >= coalesce(j.max_deliveries, most_deliveries))
                ORDER BY j.updated_at DESC, j.seq DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
                IF FOUND THEN
                    DELETE FROM holdfast.jobs j WHERE j.topic = of_topic AND j.seq = job.seq;
                    n_leased := n_leased - 1;
                    n_bytes := n_bytes - octet_length(job.payload);
                    lease := job.lease_id;
                    holder := job.node;
                    job.payload := r.payload;
                    job.content_type := r.type;
                    job.metadata := r.meta;
                    job.updated_at := clock_timestamp();
                    job.visible_at := job.updated_at;
                    job.crashes := job.crashes + 1;
                    job.state := 'scheduled';
                    job.lease_id := NULL;
                    job.node := NULL;
                    changed := holdfast.put_pending(job);
                    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node,
                                                       until)
                    VALUES (of_topic, of_id, job.seq,
                            CASE WHEN changed THEN 'updated' ELSE 'superseded' END::holdfast.job_event,
                            job.deliveries, lease, holder, CASE WHEN changed THEN job.visible_at END);
                    IF changed THEN
                        n_scheduled := n_scheduled + 1;
                        n_bytes := n_bytes + octet_length(r.payload);
                        due := due + 1;
                        seqs[r.ord] := job.seq;
                        updated[r.ord] := true;
                        EXIT;
                    END IF;
                    CONTINUE;  -- another transaction has added a pending job
                END IF;
            END IF;
            IF drawn[r.ord] IS NULL THEN
                drawn[r.ord] := nextval(sequence::regclass);
            END IF;
            INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, priority, visible_at,
                                       created_at, updated_at, expires_at, max_deliveries, tag, producer, metadata,
                                       payload, content_type, key, grp)
            VALUES (of_topic, of_id, drawn[r.ord], drawn[r.ord],
                    place, r.tenant,
                    coalesce(r.priority, 0::smallint), coalesce(starts, at), at, clock_timestamp(), r.ends_at,
                    r.most, r.tag, r.producer, r.meta, r.payload, r.type, r.key, r.grp)
            ON CONFLICT (topic, tenant, key)
                WHERE key IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'blocked')
            DO NOTHING;
            IF FOUND THEN
                INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, grp, max_deliveries, node,
                                                   tenant, until, detail)
                VALUES (of_topic, of_id, drawn[r.ord], 'enqueued', 0, r.grp, r.most, r.producer,
                        nullif(r.tenant, ''), starts, CASE WHEN place = 'blocked' THEN 'blocked' END);
                n_ready := n_ready + (place = 'ready')::integer;
                n_scheduled := n_scheduled + (place = 'scheduled')::integer;
                n_blocked := n_blocked + (place = 'blocked')::integer;
                n_bytes := n_bytes + octet_length(r.payload);
                ready := ready + (place = 'ready')::integer;
                seqs[r.ord] := drawn[r.ord];
                EXIT;
            END IF;
        END LOOP;
        IF seqs[r.ord] IS NULL THEN
            RAISE serialization_failure USING MESSAGE = 'a pending job came and went each time';
        END IF;
        head_seq := greatest(head_seq, seqs[r.ord]);
    END LOOP;
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes)
    SELECT of_id, n_ready, n_scheduled, n_blocked, n_leased, n_bytes
    WHERE (n_ready, n_scheduled, n_blocked, n_leased, n_bytes) <> (0, 0, 0, 0, 0);
    IF cardinality(fresh_grps) > 0 AND num_nonnulls(VARIADIC keys) > 0 THEN
        -- If the first job of a fresh group updated a pending job, the next one does not wait.
        SELECT enqueue_keyed.ready + n.ready INTO ready
        FROM holdfast.let_next(of_topic, of_id, sequence, fresh_tenants, fresh_grps) n;
    END IF;
    IF false = ANY (lasts) THEN
        -- Of several jobs with one key the last one counts; the earlier ones count as updated by it.
        SELECT array_agg(s.seq ORDER BY s.ord), array_agg(s.changed ORDER BY s.ord) INTO seqs, updated
        FROM (
            SELECT u.ord,
                   CASE WHEN u.key IS NULL THEN u.seq ELSE max(u.seq) OVER w END AS seq,
                   u.key IS NOT NULL AND (bool_or(u.changed) OVER w OR u.ord > min(u.ord) OVER w) AS changed
            FROM unnest(keys, tenants, seqs, updated) WITH ORDINALITY AS u(key, tenant, seq, changed, ord)
            WINDOW w AS (PARTITION BY coalesce(u.tenant, ''), u.key)
        ) s;
    END IF;
END $$;
