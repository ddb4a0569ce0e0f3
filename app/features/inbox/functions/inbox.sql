-- Triggers of the tables that SQL users write to: holdfast.inbox, and holdfast.staged, whose rows a commit takes out. They
-- run as their owner, with the owner's search_path, and with planner settings that make single rows use indexes. Triggers
-- of one kind fire in the order of their names: check_inbox, hold_stage, refuse_drained, take_inbox.

-- Trigger of inbox and staged: raises an error for the first row that is not valid.
CREATE OR REPLACE FUNCTION holdfast.check_inbox() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    one record;
    fine boolean;
    fault text;
BEGIN
    BEGIN
        SELECT bool_and((a.metadata IS NULL OR jsonb_typeof(a.metadata::jsonb) = 'object')
                        AND (a.metadata IS NULL OR length(a.metadata) <= 256
                             OR holdfast.json_depth(a.metadata) <= 128)
                        AND CASE WHEN (a.content_type IS NULL
                                       OR a.content_type ~* '^ *(application/json|[^;]*\+json) *(;|$)')
                            THEN
                                coalesce(a.payload_text, convert_from(a.payload, 'UTF8'))::jsonb IS NOT NULL
                                AND (octet_length(coalesce(a.payload, convert_to(a.payload_text, 'UTF8'))) <= 256
                                     OR length(coalesce(a.payload_text, convert_from(a.payload, 'UTF8')))
                                        - length(translate(coalesce(a.payload_text, convert_from(a.payload, 'UTF8')),
                                                           '[{', ''))
                                        <= 128
                                     OR holdfast.json_depth(coalesce(a.payload_text, convert_from(a.payload, 'UTF8')))
                                        <= 128)
                            WHEN a.content_type ILIKE 'text/%'
                            THEN coalesce(a.payload_text, convert_from(a.payload, 'UTF8')) IS NOT NULL
                            ELSE true END)
        INTO fine FROM added a;
    EXCEPTION WHEN data_exception OR statement_too_complex THEN
        fine := false;
    END;
    IF fine THEN
        RETURN NULL;
    END IF;
    FOR one IN SELECT x.*, row_number() OVER (ORDER BY x.place) AS number FROM added x ORDER BY x.place LOOP
        BEGIN
            fault := holdfast.find_fault(
                CASE WHEN (one.content_type IS NULL OR one.content_type ~* '^ *(application/json|[^;]*\+json) *(;|$)')
                          OR one.content_type ILIKE 'text/%'
                     THEN coalesce(one.payload_text, convert_from(one.payload, 'UTF8')) END,
                one.content_type, one.metadata);
        EXCEPTION WHEN data_exception THEN
            fault := 'the payload is not UTF-8, as ' || coalesce(one.content_type, 'application/json') || ' must be';
        END;
        IF fault IS NOT NULL THEN
            RAISE EXCEPTION 'row % for topic "%": %', one.number, one.topic, fault
                USING ERRCODE = 'invalid_json_text';
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Refuses rows for topics that are drained. Rows with a schema version were accepted before and checked since: they pass.
CREATE OR REPLACE FUNCTION holdfast.refuse_drained() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    drained text;
BEGIN
    SELECT t.name INTO drained
    FROM (SELECT DISTINCT x.topic FROM added x WHERE x.checked IS NULL) a
    JOIN holdfast.topics t ON t.name = a.topic WHERE t.draining ORDER BY t.name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'topic "%" is draining: it accepts no new jobs until you resume it', drained
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NULL;
END $$;

-- Turns rows into jobs of their topics: the rows of one INSERT into the inbox, or the staged rows of one commit, in their
-- order of insertion.
--
-- If a topic's rows have keys, groups or dedupe ids, enqueue_keyed or enqueue_deduped places them one by one. Other rows
-- are inserted here rather than by enqueue_plain: its arrays would hold all payloads in memory at once, at most 1 GB.
-- These rows stream from the transition table, however many there are, and they may have webhooks.
CREATE OR REPLACE FUNCTION holdfast.take_inbox() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    g record;
    t record;
    b record;
    placed record;
    held record;
    sequence regclass;
    bounded boolean;
BEGIN
    FOR g IN
        SELECT x.topic, min(coalesce(x.checked, 0)) AS checked,
               bool_or(x.key IS NOT NULL OR x."group" IS NOT NULL OR x.dedupe_id IS NOT NULL) AS singly,
               bool_or(x.priority > 0 OR x.tenant <> '') AS lanes
        FROM added x GROUP BY x.topic ORDER BY x.topic
    LOOP
        SELECT o.id, o.type, o.schema_version, o.max_depth, coalesce(o.ttl_ms, d.ttl_ms) AS ttl_ms,
               CASE WHEN o.discard = 'reject' THEN o.cap_records ELSE 0 END AS cap_records,
               CASE WHEN o.discard = 'reject' THEN o.cap_bytes ELSE 0 END AS cap_bytes,
               o.max_deliveries IS NULL OR o.on_exhausted <> 'redeliver' AS ends,
               coalesce(o.max_deliveries, greatest(1, least(
                   coalesce(o.max_retries, d.max_retries),
                   nullif(coalesce(o.dlq_threshold, o.max_retries, d.dlq_threshold), 0)))) AS max_deliveries,
               o.dedupe_window_ms AS window_ms
        INTO t FROM holdfast.topics o CROSS JOIN holdfast.defaults d WHERE o.name = g.topic;
        IF t.id IS NULL THEN
            RAISE EXCEPTION 'there is no topic "%"', g.topic USING ERRCODE = 'undefined_object',
                HINT = 'Create it first: PUT /v0/topics/' || g.topic || ' with {"type": "queue"}.';
        END IF;
        IF t.type <> 'queue' THEN
            RAISE EXCEPTION 'topic "%" is a log: the inbox takes jobs for queues only', g.topic
                USING ERRCODE = 'wrong_object_type';
        END IF;
        IF t.schema_version <> g.checked THEN
            INSERT INTO holdfast.inbox_unchecked (
                topic, payload, content_type, metadata, tag, node, priority, delay_ms, run_at, ttl_ms,
                max_deliveries, key, tenant, "group", dedupe_id, user_id, webhook)
            SELECT a.topic, coalesce(a.payload, convert_to(a.payload_text, 'UTF8')), a.content_type, a.metadata, a.tag,
                   a.node, a.priority, a.delay_ms, a.run_at, a.ttl_ms, a.max_deliveries, a.key, a.tenant,
                   a."group", a.dedupe_id, a.user_id, a.webhook
            FROM added a WHERE a.topic = g.topic;
            CONTINUE;
        END IF;
        sequence := to_regclass('holdfast.seq_' || t.id);
        IF sequence IS NULL THEN
            RAISE EXCEPTION 'topic "%" was deleted meanwhile', g.topic USING ERRCODE = 'undefined_object';
        END IF;
        bounded := t.max_depth > 0 OR t.cap_records > 0 OR t.cap_bytes > 0;
        IF g.singly THEN
            IF bounded THEN  -- every enqueue takes this lock before those of groups, keys and ids
                PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.depth ' || t.id, 0));
            END IF;
            IF (SELECT sum(octet_length(coalesce(a.payload, convert_to(a.payload_text, 'UTF8'))))
                FROM added a WHERE a.topic = g.topic) > 268435456 THEN
                RAISE EXCEPTION 'the rows for topic "%" are more than 256 MiB, the limit for rows with keys, groups or '
                    'dedupe ids', g.topic USING ERRCODE = 'program_limit_exceeded',
                    HINT = 'Write them in several parts.';
            END IF;
            SELECT count(*)::integer AS size,
                   array_agg(coalesce(a.payload, convert_to(a.payload_text, 'UTF8')) ORDER BY a.place) AS payloads,
                   array_agg(a.tag ORDER BY a.place) AS tags,
                   array_agg(a.node ORDER BY a.place) AS nodes,
                   array_agg(CASE WHEN a.user_id IS NULL THEN a.metadata::json
                                  ELSE (coalesce(a.metadata, '{}')::jsonb
                                        || jsonb_build_object('$user_id', a.user_id))::json END
                             ORDER BY a.place) AS metadata,
                   array_agg(a.tenant ORDER BY a.place) AS tenants,
                   array_agg(a.priority::smallint ORDER BY a.place) AS priorities,
                   array_agg(a.delay_ms ORDER BY a.place) AS delays, array_agg(a.run_at ORDER BY a.place) AS runs,
                   array_agg(a.ttl_ms ORDER BY a.place) AS ttls,
                   array_agg(a.max_deliveries ORDER BY a.place) AS limits,
                   array_agg(nullif(a.content_type, 'application/json') ORDER BY a.place) AS types,
                   array_agg(a.key ORDER BY a.place) AS keys, array_agg(a."group" ORDER BY a.place) AS grps,
                   array_agg(coalesce(a.dedupe_id, CASE WHEN a.topic LIKE '%.fifo'
                                 THEN encode(sha256(coalesce(a.payload, convert_to(a.payload_text, 'UTF8'))),
                                             'hex') END) ORDER BY a.place) AS ids,
                   array_agg(a.webhook ORDER BY a.place) AS hooks
            INTO b FROM added a WHERE a.topic = g.topic;
            IF t.window_ms > 0 AND num_nonnulls(VARIADIC b.ids) > 0 THEN
                SELECT e.seqs, e.duplicate INTO placed FROM holdfast.enqueue_deduped(
                    g.topic, t.id, sequence, b.payloads, b.tags, b.nodes, b.metadata, b.tenants, b.priorities,
                    b.delays, b.runs, b.ttls, b.limits, b.types, b.keys, t.ttl_ms, t.ends, t.max_deliveries, b.grps,
                    b.ids, t.window_ms, ARRAY[b.size], ARRAY[NULL]::text[], 0) e;
            ELSE
                SELECT e.seqs, '{}'::boolean[] AS duplicate INTO placed FROM holdfast.enqueue_keyed(
                    g.topic, t.id, sequence, b.payloads, b.tags, b.nodes, b.metadata, b.tenants, b.priorities,
                    b.delays, b.runs, b.ttls, b.limits, b.types, b.keys, t.ttl_ms, t.ends, t.max_deliveries,
                    CASE WHEN num_nonnulls(VARIADIC b.grps) > 0 THEN b.grps ELSE '{}' END) e;
            END IF;
            IF num_nonnulls(VARIADIC b.hooks) > 0 THEN  -- like `hook` in app/kernel/enqueue
                UPDATE holdfast.jobs j SET webhook = h.url
                FROM (SELECT DISTINCT ON (u.seq) u.seq, u.url
                      FROM unnest(placed.seqs, b.hooks, placed.duplicate) WITH ORDINALITY
                          AS u(seq, url, dropped, ord)
                      WHERE u.url IS NOT NULL AND u.dropped IS NOT TRUE ORDER BY u.seq, u.ord DESC) h
                WHERE j.topic = g.topic AND j.seq = h.seq;
            END IF;
        ELSE
            WITH clock AS MATERIALIZED (
                SELECT clock_timestamp() AS at
            ), job AS (
                INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, priority, visible_at,
                                           created_at, updated_at, expires_at, max_deliveries, tag, producer,
                                           metadata, payload, content_type, webhook)
                SELECT r.topic, t.id, r.seq, r.seq,
                       CASE WHEN greatest(r.run_at, c.at + r.delay_ms * interval '1 ms') > c.at
                            THEN 'scheduled' ELSE 'ready' END::holdfast.job_state,
                       coalesce(r.tenant, ''), coalesce(r.priority, 0)::smallint,
                       greatest(r.run_at, c.at + r.delay_ms * interval '1 ms', c.at), c.at, c.at,
                       c.at + nullif(coalesce(r.ttl_ms, t.ttl_ms), 0) * interval '1 ms',
                       r.max_deliveries, r.tag, r.node, r.meta, r.bytes, nullif(r.content_type, 'application/json'),
                       r.webhook
                FROM (
                    -- The transition table has the rows in their order of insertion.
                    SELECT a.*, coalesce(a.payload, convert_to(a.payload_text, 'UTF8')) AS bytes,
                           CASE WHEN a.user_id IS NULL THEN a.metadata::json
                                ELSE (coalesce(a.metadata, '{}')::jsonb
                                      || jsonb_build_object('$user_id', a.user_id))::json END AS meta,
                           nextval(sequence) AS seq
                    FROM added a WHERE a.topic = g.topic
                ) r CROSS JOIN clock c
                RETURNING seq, state, visible_at, producer, tenant, max_deliveries, octet_length(payload) AS size
            ), event AS (
                INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, max_deliveries, node,
                                                   tenant, until)
                SELECT g.topic, t.id, j.seq, 'enqueued', 0, j.max_deliveries, j.producer, nullif(j.tenant, ''),
                       CASE WHEN j.state = 'scheduled' THEN j.visible_at END
                FROM job j
            )
            INSERT INTO holdfast.tallies (topic_id, ready, scheduled, bytes)
            SELECT t.id, count(*) FILTER (WHERE j.state = 'ready'), count(*) FILTER (WHERE j.state = 'scheduled'),
                   sum(j.size)
            FROM job j;
        END IF;
        INSERT INTO holdfast.new_lanes (topic, tenant, priority)
        SELECT g.topic, l.tenant, l.priority
        FROM (
            SELECT '' AS tenant, 0 AS priority WHERE NOT g.lanes IS TRUE
            UNION SELECT coalesce(a.tenant, ''), coalesce(a.priority, 0) FROM added a
                  WHERE g.lanes AND a.topic = g.topic
        ) l
        WHERE NOT EXISTS (
            SELECT 1 FROM holdfast.lanes k
            WHERE k.topic = g.topic AND k.tenant = l.tenant AND k.priority = l.priority
        );
        IF bounded THEN
            -- Like `lock_depth` in app/kernel/enqueue: other enqueues into this topic wait for the end of this transaction.
            -- Rows that don't depend on other jobs take the lock only now.
            PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.depth ' || t.id, 0));
            SELECT sum(y.ready + y.scheduled + y.blocked + y.leased) AS jobs, sum(y.bytes) AS bytes
            INTO held FROM holdfast.tallies y WHERE y.topic_id = t.id;
            IF held.jobs > nullif(t.max_depth, 0) OR held.jobs > nullif(t.cap_records, 0)
                    OR held.bytes > nullif(t.cap_bytes, 0) THEN
                RAISE EXCEPTION 'topic "%" has no room for these jobs', g.topic
                    USING ERRCODE = 'configuration_limit_exceeded';
            END IF;
        END IF;
    END LOOP;
    IF TG_TABLE_NAME = 'inbox' THEN
        -- Rows of other transactions in this range are not visible here.
        DELETE FROM holdfast.inbox i
        WHERE i.place BETWEEN (SELECT min(x.place) FROM added x) AND (SELECT max(x.place) FROM added x);
    END IF;
    RETURN NULL;
END $$;

-- Trigger of holdfast.new_lanes, at commit: adds the lanes of the transaction's jobs. The transaction holds its topics'
-- sequences, so the topics are not deleted before it ends.
CREATE OR REPLACE FUNCTION holdfast.add_new_lanes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    WITH mine AS (
        DELETE FROM holdfast.new_lanes n WHERE n.tx = pg_current_xact_id() RETURNING n.topic, n.tenant, n.priority
    )
    INSERT INTO holdfast.lanes (topic, tenant, priority)
    SELECT DISTINCT m.topic, m.tenant, m.priority FROM mine m ORDER BY 1, 2, 3
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

-- Staged writes: jobs that several connections stage and one transaction enqueues (docs/spark.md). These functions
-- can't SET a holdfast parameter in their head: that takes a superuser, and the role that migrates or restores a dump may
-- not be one.

-- Opens an attempt of a task. Returns the number under which it stages rows.
CREATE OR REPLACE FUNCTION holdfast.open_stage(of_run text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    opened bigint;
BEGIN
    INSERT INTO holdfast.stages (run) VALUES (of_run) RETURNING attempt INTO opened;
    RETURN opened;
END $$;

-- Trigger of holdfast.staged: locks the attempt while rows are staged. Refuses rows of an attempt that was given up, since
-- nothing would ever delete them.
CREATE OR REPLACE FUNCTION holdfast.hold_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    first bigint;
    last bigint;
BEGIN
    SELECT min(x.attempt), max(x.attempt) INTO first, last FROM added x;
    PERFORM 1 FROM holdfast.stages s WHERE s.attempt = first AND first = last FOR KEY SHARE;
    IF NOT FOUND AND first IS NOT NULL THEN
        RAISE EXCEPTION 'attempt % was given up, or these rows belong to several attempts', first
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NULL;
END $$;

-- Turns all rows that these attempts of a run have staged into jobs, or none. Returns false if the write has committed this
-- batch or a later one before; then nothing changes, and drop_stages deletes the staged rows.
CREATE OR REPLACE FUNCTION holdfast.commit_stages(
    of_run text, of_write text, of_batch bigint, attempts bigint[], rows bigint
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    counted bigint;
BEGIN
    INSERT INTO holdfast.writes AS w (write_id, batch, jobs) VALUES (of_write, of_batch, rows)
    ON CONFLICT (write_id) DO UPDATE
    SET batch = excluded.batch, jobs = excluded.jobs, committed_at = excluded.committed_at
    WHERE w.batch < excluded.batch;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM holdfast.stages s WHERE s.attempt = ANY (attempts) AND s.run = of_run
    ORDER BY s.attempt FOR UPDATE;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted = cardinality(attempts) THEN
        PERFORM set_config('holdfast.commits', 'on', true);
        DELETE FROM holdfast.staged s WHERE s.attempt = ANY (attempts);
        GET DIAGNOSTICS counted = ROW_COUNT;
        PERFORM set_config('holdfast.commits', 'off', true);
        IF counted = rows THEN
            DELETE FROM holdfast.stages s WHERE s.attempt = ANY (attempts);
            RETURN true;
        END IF;
    END IF;
    RAISE EXCEPTION 'some of the % rows staged for write "%" are missing, so nothing was written',
        rows, of_write USING ERRCODE = 'object_not_in_prerequisite_state',
        HINT = 'PostgreSQL has crashed, or a day has passed since they were staged. Write them again.';
END $$;

-- Deletes up to `most` rows that were staged in this run, or without a run, in attempts that are more than a day old.
-- Returns how many. Fewer than `most` means all, except rows that are being written or committed.
CREATE OR REPLACE FUNCTION holdfast.drop_stages(of_run text, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    dropped integer := 0;
    gone integer;
    one bigint;
BEGIN
    PERFORM set_config('holdfast.commits', 'off', true);
    FOR one IN
        SELECT s.attempt FROM holdfast.stages s
        WHERE s.run = of_run OR (of_run IS NULL AND s.started_at < clock_timestamp() - interval '1 day')
        ORDER BY s.attempt LIMIT 1000 FOR UPDATE SKIP LOCKED
    LOOP
        DELETE FROM holdfast.staged s
        WHERE s.ctid = ANY (ARRAY(
            SELECT x.ctid FROM holdfast.staged x WHERE x.attempt = one LIMIT most - dropped));
        GET DIAGNOSTICS gone = ROW_COUNT;
        dropped := dropped + gone;
        EXIT WHEN dropped >= most;
        DELETE FROM holdfast.stages s WHERE s.attempt = one;
    END LOOP;
    RETURN dropped;
END $$;
