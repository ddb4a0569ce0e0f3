-- The schema of Holdfast: made by `make schema` from the migrations, never by hand.
-- The partitions of lease_events, archive and results, one for each day, are left out; the service makes them ahead.

--
-- PostgreSQL database dump
--

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: holdfast; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA holdfast;

--
-- Name: discard; Type: TYPE; Schema: holdfast; Owner: -
--

CREATE TYPE holdfast.discard AS ENUM (
    'old',
    'reject'
);

--
-- Name: durability; Type: TYPE; Schema: holdfast; Owner: -
--

CREATE TYPE holdfast.durability AS ENUM (
    'ephemeral',
    'memory',
    'disk',
    'fsync'
);

--
-- Name: exhaustion; Type: TYPE; Schema: holdfast; Owner: -
--

CREATE TYPE holdfast.exhaustion AS ENUM (
    'redeliver',
    'fail',
    'dead_letter'
);

--
-- Name: job_event; Type: TYPE; Schema: holdfast; Owner: -
--

CREATE TYPE holdfast.job_event AS ENUM (
    'enqueued',
    'claimed',
    'extended',
    'released',
    'acked',
    'dead_lettered',
    'failed',
    'expired',
    'deleted',
    'updated',
    'superseded',
    'requeued',
    'unblocked',
    'cancelled'
);

--
-- Name: job_state; Type: TYPE; Schema: holdfast; Owner: -
--

CREATE TYPE holdfast.job_state AS ENUM (
    'scheduled',
    'ready',
    'blocked',
    'leased',
    'failed',
    'expired'
);

--
-- Name: outcome; Type: TYPE; Schema: holdfast; Owner: -
--

CREATE TYPE holdfast.outcome AS ENUM (
    'completed'
);

--
-- Name: topic_type; Type: TYPE; Schema: holdfast; Owner: -
--

CREATE TYPE holdfast.topic_type AS ENUM (
    'log',
    'queue'
);

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: jobs; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.jobs (
    seq bigint NOT NULL,
    "position" bigint NOT NULL,
    visible_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    original_seq bigint,
    dlq_moved_at timestamp with time zone,
    topic_id integer NOT NULL,
    deliveries integer DEFAULT 0 NOT NULL,
    max_deliveries integer,
    original_deliveries integer,
    state holdfast.job_state NOT NULL,
    priority smallint DEFAULT 0 NOT NULL,
    lease_id uuid,
    topic text NOT NULL COLLATE pg_catalog."C",
    tenant text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    node text,
    tag text,
    producer text,
    last_error text,
    original_topic text COLLATE pg_catalog."C",
    metadata json,
    payload bytea NOT NULL,
    leased_at timestamp with time zone,
    content_type text,
    first_topic_id integer,
    first_seq bigint,
    key text COLLATE pg_catalog."C",
    original_tenant text COLLATE pg_catalog."C",
    original_max_deliveries integer,
    ttl_ms bigint,
    cluster text COLLATE pg_catalog."C",
    failed_in text COLLATE pg_catalog."C",
    failed_at timestamp with time zone,
    grp text COLLATE pg_catalog."C",
    crashes integer DEFAULT 0 NOT NULL,
    refunds smallint DEFAULT 0 NOT NULL,
    original_crashes integer,
    cancelled_at timestamp with time zone,
    progress smallint,
    progress_note text,
    progress_at timestamp with time zone,
    progress_lease uuid,
    webhook text,
    left_grp text COLLATE pg_catalog."C",
    CONSTRAINT jobs_check CHECK (((state = 'leased'::holdfast.job_state) = (lease_id IS NOT NULL))),
    CONSTRAINT jobs_check1 CHECK (((state = 'leased'::holdfast.job_state) = (node IS NOT NULL))),
    CONSTRAINT jobs_deliveries_check CHECK ((deliveries >= 0)),
    CONSTRAINT jobs_grp_check CHECK (((char_length(grp) >= 1) AND (char_length(grp) <= 128))),
    CONSTRAINT jobs_key_check CHECK (((char_length(key) >= 1) AND (char_length(key) <= 256))),
    CONSTRAINT jobs_max_deliveries_check CHECK (((max_deliveries >= 0) AND (max_deliveries <= 10000))),
    CONSTRAINT jobs_webhook_check CHECK (((octet_length(webhook) >= 1) AND (octet_length(webhook) <= 2048)))
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_scale_factor='0.1', autovacuum_analyze_scale_factor='0.05', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY holdfast.jobs ALTER COLUMN payload SET STORAGE EXTERNAL;

--
-- Name: about(holdfast.jobs); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.about(job holdfast.jobs) RETURNS json
    LANGUAGE sql STABLE
    AS $$
    SELECT json_build_object(
        'url', CASE WHEN job.original_topic IS NULL THEN job.webhook END, 'tag', job.tag, 'meta', job.metadata,
        'first_topic_id', job.first_topic_id, 'first_seq', job.first_seq)
$$;

--
-- Name: add_new_lanes(); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.add_new_lanes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
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

--
-- Name: append_records(text, integer, bytea[], text[], text[], json[], integer[], bigint[], text[], bigint, bigint, boolean, bigint, bigint); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.append_records(of_topic text, of_id integer, payloads bytea[], tags text[], nodes text[], metadata json[], sizes integer[], weights bigint[], keys text[], cap_records bigint, cap_bytes bigint, rejects boolean, ttl_ms bigint, window_ms bigint, OUT outcomes text[], OUT firsts bigint[], OUT lasts bigint[], OUT head_seq bigint, OUT earliest_seq bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    s holdfast.log_state := holdfast.lock_log(of_topic, of_id);
    -- Never goes back, even if the clock does, so records that are too old are always the first ones.
    now_at timestamptz := greatest(clock_timestamp(), s.written_at);
    too_old timestamptz := CASE WHEN ttl_ms > 0 THEN now_at - ttl_ms * interval '1 ms' ELSE '-infinity' END;
    place bigint := 0;   -- records of the callers so far
    taken bigint := 0;   -- how many of them are written
    weight bigint := 0;  -- the bytes of these
    shifts bigint[];     -- difference of a record's seq and its place; NULL if its caller is refused
    callers integer[];
    known record;
BEGIN
    IF rejects AND ttl_ms > 0 THEN
        s := holdfast.trim_front(s, 0, 0, too_old, 2 * cardinality(payloads) + 5000);
    END IF;
    FOR i IN 1..cardinality(sizes) LOOP
        firsts[i] := 0;
        lasts[i] := 0;
        shifts[i] := NULL;
        place := place + sizes[i];
        IF keys[i] IS NOT NULL THEN
            SELECT k.first_seq, k.last_seq INTO known FROM holdfast.idempotency k
            WHERE k.topic = of_topic AND k.key = keys[i] AND k.expires_at > now_at;
            IF FOUND THEN
                outcomes[i] := 'deduped';
                firsts[i] := known.first_seq;
                lasts[i] := known.last_seq;
                CONTINUE;
            END IF;
        END IF;
        IF rejects AND ((cap_records > 0 AND s.count + taken + sizes[i] > cap_records)
                        OR (cap_bytes > 0 AND s.bytes + weight + weights[i] > cap_bytes)) THEN
            outcomes[i] := 'full';
            CONTINUE;
        END IF;
        outcomes[i] := 'written';
        firsts[i] := s.head_seq + taken + 1;
        shifts[i] := s.head_seq + taken - (place - sizes[i]);
        taken := taken + sizes[i];
        weight := weight + weights[i];
        lasts[i] := s.head_seq + taken;
        IF keys[i] IS NOT NULL AND window_ms > 0 THEN
            INSERT INTO holdfast.idempotency AS k (topic, topic_id, key, expires_at, first_seq, last_seq)
            VALUES (of_topic, of_id, keys[i], now_at + window_ms * interval '1 ms', firsts[i], lasts[i])
            ON CONFLICT (topic, key) DO UPDATE
            SET topic_id = excluded.topic_id, expires_at = excluded.expires_at, first_seq = excluded.first_seq,
                last_seq = excluded.last_seq, seqs = NULL;
        END IF;
    END LOOP;
    IF taken = place THEN
        INSERT INTO holdfast.records (topic, topic_id, seq, created_at, tag, node, metadata, payload)
        SELECT of_topic, of_id, s.head_seq + r.ord, now_at, r.tag, r.node, r.metadata, r.payload
        FROM unnest(payloads, tags, nodes, metadata)
            WITH ORDINALITY AS r(payload, tag, node, metadata, ord);
    ELSIF taken > 0 THEN
        SELECT array_agg(c.i ORDER BY c.i) INTO callers
        FROM unnest(sizes) WITH ORDINALITY AS c(size, i) CROSS JOIN generate_series(1, c.size);
        INSERT INTO holdfast.records (topic, topic_id, seq, created_at, tag, node, metadata, payload)
        SELECT of_topic, of_id, shifts[callers[r.ord]] + r.ord, now_at, r.tag, r.node, r.metadata, r.payload
        FROM unnest(payloads, tags, nodes, metadata)
            WITH ORDINALITY AS r(payload, tag, node, metadata, ord)
        WHERE shifts[callers[r.ord]] IS NOT NULL;
    END IF;
    IF taken > 0 THEN
        s.head_seq := s.head_seq + taken;
        s.count := s.count + taken;
        s.bytes := s.bytes + weight;
        s.written_at := now_at;
        IF ttl_ms > 0 OR (NOT rejects AND ((cap_records > 0 AND s.count > cap_records)
                                           OR (cap_bytes > 0 AND s.bytes > cap_bytes))) THEN
            s := holdfast.trim_front(
                s,
                CASE WHEN cap_records > 0 AND NOT rejects THEN s.count - cap_records ELSE 0 END,
                CASE WHEN cap_bytes > 0 AND NOT rejects THEN s.bytes - cap_bytes ELSE 0 END,
                too_old, 2 * taken + 5000);
        END IF;
        PERFORM holdfast.write_log_state(s);
    END IF;
    head_seq := s.head_seq;
    earliest_seq := s.earliest_seq;
END $$;

--
-- Name: as_of(text, integer, timestamp with time zone); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.as_of(of_topic text, of_topic_id integer, instant timestamp with time zone, OUT ready bigint, OUT in_flight bigint, OUT scheduled bigint, OUT blocked bigint, OUT failed bigint, OUT expired bigint, OUT dead bigint, OUT oldest timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE
    SET enable_bitmapscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'on'
    SET plan_cache_mode TO 'force_custom_plan'
    SET work_mem TO '64MB'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
DECLARE
    since timestamptz;
    older boolean;    -- whether it may have jobs from before `since`
    letters text;     -- its dead-letter topic
    letters_id integer;
BEGIN
    SELECT greatest(f.first_at, t.created_at), t.created_at < f.first_at, d.name, d.id
    INTO since, older, letters, letters_id
    FROM holdfast.events_from(of_topic_id) AS f(first_at)
    LEFT JOIN holdfast.topics t ON t.name = of_topic AND t.id = of_topic_id
    LEFT JOIN holdfast.topics d ON d.name = coalesce(t.dead_letter, t.name || '.dlq');
    IF older AND instant < since THEN
        RETURN;
    END IF;
    WITH told AS MATERIALIZED (
        SELECT DISTINCT ON (e.topic_id, e.seq) e.topic_id, e.seq, e.event, e.at, e.until,
               coalesce(e.until, e.at) AS since, coalesce(e.detail, '') AS detail,
               bool_or(e.event = 'updated' AND e.until IS NULL) OVER job AS cancelled,
               max(e.at) FILTER (WHERE e.event = 'enqueued') OVER job AS came_at,
               max(e.detail) FILTER (WHERE e.event = 'enqueued') OVER job AS came
        FROM holdfast.lease_events e
        WHERE e.topic_id IN (of_topic_id, letters_id) AND e.at >= since AND e.at <= instant
          AND (e.event <> 'updated' OR e.until IS NOT NULL OR e.detail = 'to be cancelled')
        WINDOW job AS (PARTITION BY e.topic_id, e.seq)
        ORDER BY e.topic_id, e.seq, e.event = 'updated' AND e.until IS NULL, e.at DESC, e.tx DESC
    ), placed AS MATERIALIZED (
        SELECT l.topic_id, l.seq, l.at, l.since, l.came_at, l.came,
               CASE WHEN l.event = 'requeued' AND starts_with(l.detail, 'to ') THEN 'gone'
                    WHEN (l.event = 'enqueued' AND l.detail LIKE '%blocked')
                         OR (l.event = 'requeued' AND l.until IS NULL) THEN 'blocked'
                    WHEN l.event IN ('claimed', 'extended') AND l.until >= instant THEN 'leased'
                    WHEN l.event IN ('claimed', 'extended') AND l.cancelled THEN 'gone'
                    WHEN l.event IN ('enqueued', 'unblocked', 'released', 'requeued', 'updated') AND l.since > instant
                        THEN 'scheduled'
                    WHEN l.event IN ('enqueued', 'unblocked', 'released', 'requeued', 'updated', 'claimed', 'extended')
                        THEN 'ready'
                    WHEN l.event IN ('failed', 'expired', 'dead_lettered') THEN l.event::text
                    ELSE 'gone' END AS state
        FROM told l
        WHERE NOT (l.event = 'updated' AND l.until IS NULL)  -- the next event tells where it was
    ), away AS MATERIALIZED (
        SELECT x.came, max(x.came_at) AS came_at FROM placed x
        WHERE x.topic_id = letters_id AND x.state = 'gone' GROUP BY x.came
    ), own AS (
        SELECT p.seq, p.since,
               CASE WHEN p.state = 'dead_lettered' AND a.came_at >= p.at THEN 'gone' ELSE p.state END AS state
        FROM placed p LEFT JOIN away a ON a.came = 'from ' || of_topic || ' ' || p.seq
        WHERE p.topic_id = of_topic_id
    ), next AS MATERIALIZED (
        SELECT DISTINCT ON (e.seq) e.seq, e.event, e.lease_id IS NOT NULL AS held, coalesce(e.detail, '') AS detail
        FROM holdfast.lease_events e
        WHERE older AND e.topic_id = of_topic_id AND e.at > instant AND e.at >= since
          AND (e.event <> 'updated' OR e.until IS NOT NULL OR e.detail = 'to be cancelled')
          AND NOT EXISTS (SELECT FROM own o WHERE o.seq = e.seq)
        ORDER BY e.seq, e.at, e.tx
    ), still AS (
        SELECT j.state::text AS state, j.visible_at, j.cancelled_at IS NOT NULL AS cancelled
        FROM holdfast.jobs j
        WHERE older AND j.topic = of_topic AND j.topic_id = of_topic_id AND j.created_at < since
          AND NOT EXISTS (SELECT FROM own o WHERE o.seq = j.seq)
          AND NOT EXISTS (SELECT FROM next n WHERE n.seq = j.seq)
    ), job AS (
        SELECT o.state, o.since FROM own o
        UNION ALL
        SELECT CASE WHEN n.event = 'enqueued' THEN 'gone'
                    WHEN n.event = 'requeued' AND starts_with(n.detail, 'from ') THEN 'dead_lettered'
                    WHEN n.event IN ('requeued', 'deleted') AND starts_with(n.detail, 'was ')
                         AND n.detail <> 'was leased' THEN substr(n.detail, 5)
                    WHEN n.event = 'unblocked' THEN 'blocked'
                    WHEN n.event IN ('extended', 'acked', 'released')
                         OR (n.event = 'updated' AND n.detail = 'to be cancelled')
                         OR (n.event IN ('failed', 'expired', 'dead_lettered', 'deleted', 'superseded', 'cancelled')
                             AND n.held) THEN 'leased'
                    ELSE 'ready' END, NULL
        FROM next n
        UNION ALL
        SELECT CASE WHEN s.state NOT IN ('ready', 'scheduled', 'leased') THEN s.state
                    WHEN s.state = 'leased' AND s.visible_at >= instant THEN 'leased'
                    WHEN s.state = 'leased' AND s.cancelled THEN 'gone'
                    WHEN s.visible_at > instant THEN 'scheduled' ELSE 'ready' END, s.visible_at
        FROM still s
        UNION ALL
        SELECT 'dead_lettered', NULL FROM holdfast.jobs j
        WHERE older AND j.topic = letters AND j.topic_id = letters_id AND j.dlq_moved_at < since
          AND j.original_topic = of_topic AND NOT EXISTS (SELECT FROM own o WHERE o.seq = j.original_seq)
    )
    SELECT count(*) FILTER (WHERE j.state = 'ready'), count(*) FILTER (WHERE j.state = 'leased'),
           count(*) FILTER (WHERE j.state = 'scheduled'), count(*) FILTER (WHERE j.state = 'blocked'),
           count(*) FILTER (WHERE j.state = 'failed'), count(*) FILTER (WHERE j.state = 'expired'),
           count(*) FILTER (WHERE j.state = 'dead_lettered'), min(j.since) FILTER (WHERE j.state = 'ready')
    INTO ready, in_flight, scheduled, blocked, failed, expired, dead, oldest FROM job j;
END $$;

--
-- Name: assert_lease(text); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.assert_lease(token text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $_$
DECLARE
    parts text[] := regexp_match(token, '^(.+):([0-9]{1,18}):lease_([0-9a-f]{32})$');
BEGIN
    IF parts IS NULL THEN
        RAISE EXCEPTION 'this is not the token of a claimed job' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM 1 FROM holdfast.jobs j
    WHERE j.topic = parts[1] AND j.seq = parts[2]::bigint AND j.state::text = 'leased'
      AND j.lease_id = parts[3]::uuid AND j.visible_at >= clock_timestamp()
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease on job % of topic "%" has ended', parts[2], parts[1]
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $_$;

--
-- Name: backoff_ms(json, integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.backoff_ms(policy json, deliveries integer) RETURNS bigint
    LANGUAGE sql PARALLEL SAFE
    AS $$
    SELECT (least((policy->>'cap_ms')::float8,
                  (policy->>'base_ms')::float8
                  * CASE policy->>'kind' WHEN 'fixed' THEN 1 WHEN 'linear' THEN deliveries
                                         WHEN 'exponential' THEN 2 ^ least(deliveries - 1, 30) ELSE 0 END)
            * (1 - random() * CASE policy->>'jitter' WHEN 'full' THEN 1 WHEN 'equal' THEN 0.5 ELSE 0 END))::bigint
$$;

--
-- Name: bucket_top(integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.bucket_top(bucket integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    SELECT CASE WHEN bucket < 16 THEN bucket
                ELSE ((bucket % 8 + 9)::bigint << (bucket / 8 - 1)) - 1 END
$$;

--
-- Name: check_inbox(); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.check_inbox() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $_$
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
END $_$;

--
-- Name: commit_stages(text, text, bigint, bigint[], bigint); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.commit_stages(of_run text, of_write text, of_batch bigint, attempts bigint[], rows bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
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

--
-- Name: complete(text, json); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.complete(token text, result json DEFAULT NULL::json) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $_$
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

END $_$;

--
-- Name: create_day_partitions(text, integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.create_day_partitions(parent text, ahead integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    made integer := 0;
    name text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.' || parent, 0));
    FOR day IN 0..ahead LOOP
        name := parent || '_' || to_char(today + day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(format('holdfast.%I', name)) IS NOT NULL;
        EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.%I INCLUDING DEFAULTS INCLUDING STORAGE)',
                       name, parent);
        EXECUTE format(
            'ALTER TABLE holdfast.%I ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)', parent, name,
            (today + day)::timestamp AT TIME ZONE 'UTC', (today + day + 1)::timestamp AT TIME ZONE 'UTC');
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;

--
-- Name: create_topic_sequence(integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.create_topic_sequence(topic_id integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    EXECUTE format('CREATE SEQUENCE holdfast.%I AS bigint CACHE 1', 'seq_' || topic_id);
END $$;

--
-- Name: delete_records(text, integer, bigint, text, text, text, bigint, integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.delete_records(of_topic text, of_id integer, upto bigint, exact text, prefix text, after_tag text, after_seq bigint, most integer, OUT deleted bigint, OUT last_tag text, OUT last_seq bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    s holdfast.log_state := holdfast.lock_log(of_topic, of_id);
    places tid[];
    gone_bytes bigint := 0;
BEGIN
    IF exact IS NOT NULL THEN
        SELECT array_agg(x.place), exact, max(x.seq) INTO places, last_tag, last_seq FROM (
            SELECT r.ctid AS place, r.seq FROM holdfast.records r
            WHERE r.topic = of_topic AND r.tag = exact AND r.seq > after_seq AND r.seq <= upto
            ORDER BY r.seq LIMIT most
        ) x;
    ELSIF prefix IS NOT NULL THEN
        SELECT array_agg(x.place), (array_agg(x.tag ORDER BY x.tag DESC, x.seq DESC))[1],
               (array_agg(x.seq ORDER BY x.tag DESC, x.seq DESC))[1]
        INTO places, last_tag, last_seq FROM (
            SELECT r.ctid AS place, r.tag, r.seq FROM holdfast.records r
            WHERE r.topic = of_topic AND r.tag >= prefix AND r.tag <= prefix || repeat(chr(1114111), 64)
              AND (r.tag, r.seq) > (after_tag, after_seq) AND r.seq <= upto AND starts_with(r.tag, prefix)
            ORDER BY r.tag, r.seq LIMIT most
        ) x;
    ELSE
        SELECT array_agg(x.place), '', max(x.seq) INTO places, last_tag, last_seq FROM (
            SELECT r.ctid AS place, r.seq FROM holdfast.records r
            WHERE r.topic = of_topic AND r.seq >= s.earliest_seq AND r.seq <= upto ORDER BY r.seq LIMIT most
        ) x;
    END IF;
    WITH gone AS (
        DELETE FROM holdfast.records r WHERE r.ctid = ANY (places)
        RETURNING octet_length(r.payload) + coalesce(octet_length(r.metadata::text), 0) AS size
    )
    SELECT count(*), coalesce(sum(g.size), 0) INTO deleted, gone_bytes FROM gone g;
    IF deleted > 0 THEN
        s.count := s.count - deleted;
        s.bytes := s.bytes - gone_bytes;
        s.earliest_seq := coalesce((
            SELECT r.seq FROM holdfast.records r
            WHERE r.topic = of_topic AND r.seq >= s.earliest_seq AND r.seq <= s.head_seq ORDER BY r.seq LIMIT 1
        ), s.head_seq + 1);
        PERFORM holdfast.write_log_state(s);
    END IF;
END $$;

--
-- Name: drop_day_partitions(text, integer, boolean); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.drop_day_partitions(parent text, keep_days integer, only_archived boolean, OUT gone integer, OUT held integer) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    old record;
BEGIN
    gone := 0;
    held := 0;
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.' || parent, 0));
    FOR old IN
        SELECT d.partition, d.archived FROM holdfast.day_partitions d
        WHERE d.of_table = parent AND d.day < today - keep_days ORDER BY d.day
    LOOP
        IF only_archived AND NOT old.archived THEN
            held := held + 1;
            CONTINUE;
        END IF;
        EXECUTE format('DROP TABLE holdfast.%I', old.partition);
        gone := gone + 1;
    END LOOP;
END $$;

--
-- Name: drop_result_partitions(boolean); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.drop_result_partitions(only_archived boolean, OUT gone integer, OUT held integer) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    needed boolean;
    old record;
BEGIN
    gone := 0;
    held := 0;
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.results', 0));
    FOR old IN
        SELECT d.partition, d.archived FROM holdfast.day_partitions d
        WHERE d.of_table = 'results' AND d.day < today - 1 ORDER BY d.day
    LOOP
        EXECUTE format(
            'SELECT EXISTS (SELECT 1 FROM holdfast.%I r WHERE (r.expires_at IS NULL OR r.expires_at > now())
                            AND EXISTS (SELECT 1 FROM holdfast.topics t WHERE t.id = r.topic_id))', old.partition)
            INTO needed;
        CONTINUE WHEN needed;
        IF only_archived AND NOT old.archived THEN
            held := held + 1;
            CONTINUE;
        END IF;
        EXECUTE format('DROP TABLE holdfast.%I', old.partition);
        gone := gone + 1;
    END LOOP;
END $$;

--
-- Name: drop_stages(text, integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.drop_stages(of_run text, most integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
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

--
-- Name: drop_topic_sequence(integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.drop_topic_sequence(topic_id integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    EXECUTE format('DROP SEQUENCE IF EXISTS holdfast.%I', 'seq_' || topic_id);
END $$;

--
-- Name: duration_bucket(bigint); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.duration_bucket(ms bigint) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN ms < 16 THEN ms::integer
                ELSE 8 * (floor(ln(ms + 0.5::float8) / ln(2::float8))::integer - 3)
                     + (ms >> (floor(ln(ms + 0.5::float8) / ln(2::float8))::integer - 3))::integer END
$$;

--
-- Name: enqueue(text, bytea, text, jsonb, text, text, integer, bigint, timestamp with time zone, bigint, integer, text, text, text, text, text, text); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.enqueue(topic text, payload bytea, content_type text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, tag text DEFAULT NULL::text, node text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, delay_ms bigint DEFAULT NULL::bigint, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, ttl_ms bigint DEFAULT NULL::bigint, max_deliveries integer DEFAULT NULL::integer, key text DEFAULT NULL::text, tenant text DEFAULT NULL::text, "group" text DEFAULT NULL::text, dedupe_id text DEFAULT NULL::text, user_id text DEFAULT NULL::text, webhook text DEFAULT NULL::text) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
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

--
-- Name: enqueue(text, jsonb, text, jsonb, text, text, integer, bigint, timestamp with time zone, bigint, integer, text, text, text, text, text, text); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.enqueue(topic text, payload jsonb, content_type text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, tag text DEFAULT NULL::text, node text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, delay_ms bigint DEFAULT NULL::bigint, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, ttl_ms bigint DEFAULT NULL::bigint, max_deliveries integer DEFAULT NULL::integer, key text DEFAULT NULL::text, tenant text DEFAULT NULL::text, "group" text DEFAULT NULL::text, dedupe_id text DEFAULT NULL::text, user_id text DEFAULT NULL::text, webhook text DEFAULT NULL::text) RETURNS uuid
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    SELECT holdfast.enqueue($1, convert_to($2::text, 'UTF8'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
                            $15, $16, $17)
$_$;

--
-- Name: enqueue(text, text, text, jsonb, text, text, integer, bigint, timestamp with time zone, bigint, integer, text, text, text, text, text, text); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.enqueue(topic text, payload text, content_type text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, tag text DEFAULT NULL::text, node text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, delay_ms bigint DEFAULT NULL::bigint, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, ttl_ms bigint DEFAULT NULL::bigint, max_deliveries integer DEFAULT NULL::integer, key text DEFAULT NULL::text, tenant text DEFAULT NULL::text, "group" text DEFAULT NULL::text, dedupe_id text DEFAULT NULL::text, user_id text DEFAULT NULL::text, webhook text DEFAULT NULL::text) RETURNS uuid
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    SELECT holdfast.enqueue($1, convert_to($2::text, 'UTF8'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
                            $15, $16, $17)
$_$;

--
-- Name: enqueue_deduped(text, integer, oid, bytea[], text[], text[], json[], text[], smallint[], bigint[], timestamp with time zone[], bigint[], integer[], text[], text[], bigint, boolean, integer, text[], text[], bigint, integer[], text[], bigint); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.enqueue_deduped(of_topic text, of_id integer, sequence oid, payloads bytea[], tags text[], producers text[], metadata json[], tenants text[], priorities smallint[], delays_ms bigint[], run_ats timestamp with time zone[], ttls_ms bigint[], limits integer[], types text[], keys text[], topic_ttl_ms bigint, ends boolean, most_deliveries integer, grps text[], dedupe_ids text[], window_ms bigint, sizes integer[], batch_keys text[], batch_window_ms bigint) RETURNS TABLE(seqs bigint[], updated boolean[], head_seq bigint, ready integer, due integer, touched integer, duplicate boolean[], repeated boolean)
    LANGUAGE plpgsql
    AS $$
DECLARE
    total integer := cardinality(payloads);
    wrote boolean[] := array_fill(false, ARRAY[cardinality(sizes)]);  -- by caller: whether its key is new
    dropped boolean[] := array_fill(false, ARRAY[total]);             -- by record: whether it is a duplicate
    jobs bigint[] := array_fill(NULL::bigint, ARRAY[total]);          -- by record: its job
    changed boolean[] := array_fill(false, ARRAY[total]);
    leaders integer[] := array_fill(NULL::integer, ARRAY[total]);     -- by record: the first one with its id
    claims tid[] := array_fill(NULL::tid, ARRAY[total]);              -- by first record: the row of its id
    kept integer[];
    drawn bigint[];
    renewed boolean[];
    place integer := 0;
    newest bigint;
    r record;
    p record;
BEGIN
    -- Locks the sequence until the end of the transaction, as nextval does, so the topic's deletion waits.
    head_seq := coalesce(pg_sequence_last_value(sequence::regclass), 0);
    ready := 0;
    due := 0;
    touched := 0;
    FOR r IN
        SELECT c.key COLLATE "C" AS key, c.ord, c.size, sum(c.size) OVER (ORDER BY c.ord) AS upto
        FROM unnest(batch_keys, sizes) WITH ORDINALITY AS c(key, size, ord)
        ORDER BY 1, 2
    LOOP
        CONTINUE WHEN r.key IS NULL;
        INSERT INTO holdfast.idempotency AS k (topic, topic_id, key, expires_at, first_seq, last_seq)
        VALUES (of_topic, of_id, r.key, clock_timestamp() + batch_window_ms * interval '1 ms', 0, 0)
        ON CONFLICT (topic, key) DO UPDATE SET topic_id = excluded.topic_id, expires_at = excluded.expires_at
        WHERE k.expires_at <= clock_timestamp() OR k.topic_id <> excluded.topic_id;
        wrote[r.ord] := FOUND;
        IF NOT FOUND THEN
            FOR i IN r.upto - r.size + 1..r.upto LOOP
                dropped[i] := true;
            END LOOP;
        END IF;
    END LOOP;
    -- A new row has its record's place as a negative number until its seq is known.
    INSERT INTO holdfast.dedupe AS d (topic_id, tenant, grp, dedupe_id, seq, expires_at)
    SELECT of_id, coalesce(u.tenant, '') COLLATE "C",
           CASE WHEN starts_with(u.id, E'\x1f') THEN '' ELSE coalesce(u.grp, '') END COLLATE "C", u.id COLLATE "C",
           -min(u.ord), clock_timestamp() + window_ms * interval '1 ms'
    FROM unnest(dedupe_ids, tenants, grps) WITH ORDINALITY AS u(id, tenant, grp, ord)
    WHERE u.id IS NOT NULL AND NOT dropped[u.ord]
    GROUP BY 2, 3, 4
    ORDER BY 2, 3, 4
    ON CONFLICT (topic_id, tenant, grp, dedupe_id) DO UPDATE
    SET seq = excluded.seq, expires_at = excluded.expires_at
    WHERE d.expires_at <= clock_timestamp();
    FOR r IN
        SELECT u.ord, x.tid, x.seq
        FROM unnest(dedupe_ids, tenants, grps) WITH ORDINALITY AS u(id, tenant, grp, ord)
        CROSS JOIN LATERAL (
            SELECT d.ctid AS tid, d.seq FROM holdfast.dedupe d
            WHERE d.topic_id = of_id AND d.tenant = coalesce(u.tenant, '')
              AND d.grp = CASE WHEN starts_with(u.id, E'\x1f') THEN '' ELSE coalesce(u.grp, '') END
              AND d.dedupe_id = u.id
            OFFSET 0
        ) x
        WHERE u.id IS NOT NULL AND NOT dropped[u.ord]
    LOOP
        IF r.seq = -r.ord THEN
            claims[r.ord] := r.tid;
            CONTINUE;
        ELSIF r.seq < 0 THEN
            leaders[r.ord] := -r.seq;
        ELSE
            jobs[r.ord] := r.seq;
        END IF;
        dropped[r.ord] := true;
    END LOOP;
    kept := array(SELECT n FROM generate_series(1, total) AS n WHERE NOT dropped[n] ORDER BY n);
    IF cardinality(kept) < total THEN
        SELECT array_agg(u.payload ORDER BY u.ord), array_agg(u.tag ORDER BY u.ord),
               array_agg(u.producer ORDER BY u.ord), array_agg(u.meta ORDER BY u.ord),
               array_agg(u.tenant ORDER BY u.ord), array_agg(u.priority ORDER BY u.ord),
               array_agg(u.delay_ms ORDER BY u.ord), array_agg(u.run_at ORDER BY u.ord),
               array_agg(u.ttl_ms ORDER BY u.ord), array_agg(u.most ORDER BY u.ord),
               array_agg(u.type ORDER BY u.ord), array_agg(u.key ORDER BY u.ord),
               CASE WHEN cardinality(grps) > 0 THEN array_agg(u.grp ORDER BY u.ord) ELSE grps END
        INTO payloads, tags, producers, metadata, tenants, priorities, delays_ms, run_ats, ttls_ms, limits, types,
             keys, grps
        FROM unnest(payloads, tags, producers, metadata, tenants, priorities, delays_ms, run_ats, ttls_ms, limits,
                    types, keys, grps)
            WITH ORDINALITY AS u(payload, tag, producer, meta, tenant, priority, delay_ms, run_at, ttl_ms, most,
                                 type, key, grp, ord)
        WHERE NOT dropped[u.ord];
    END IF;
    IF cardinality(kept) > 0 THEN
        IF array_remove(keys, NULL) = '{}' AND array_remove(grps, NULL) = '{}' THEN
            SELECT e.seqs INTO drawn
            FROM holdfast.enqueue_plain(
                of_topic, of_id, sequence, payloads, tags, producers, metadata, tenants, priorities, delays_ms,
                run_ats, ttls_ms, limits, types, topic_ttl_ms) AS e(seqs);
            head_seq := drawn[cardinality(drawn)];
            ready := cardinality(kept) - (SELECT count(*) FROM unnest(delays_ms) AS u(ms) WHERE u.ms > 0);
        ELSE
            p := holdfast.enqueue_keyed(
                of_topic, of_id, sequence, payloads, tags, producers, metadata, tenants, priorities, delays_ms,
                run_ats, ttls_ms, limits, types, keys, topic_ttl_ms, ends, most_deliveries, grps);
            drawn := p.seqs;
            renewed := p.updated;
            head_seq := p.head_seq;
            ready := p.ready;
            due := p.due;
            touched := p.touched;
        END IF;
        FOR r IN SELECT u.* FROM unnest(kept, drawn, renewed) AS u(place, seq, updated) LOOP
            jobs[r.place] := r.seq;
            changed[r.place] := coalesce(r.updated, false);
        END LOOP;
        UPDATE holdfast.dedupe d SET seq = u.seq
        FROM unnest(kept, drawn) AS u(place, seq) WHERE d.ctid = claims[u.place];
    END IF;
    FOR i IN 1..total LOOP
        IF leaders[i] IS NOT NULL THEN
            jobs[i] := jobs[leaders[i]];
        END IF;
    END LOOP;
    place := 0;
    newest := head_seq;
    FOR i IN 1..cardinality(sizes) LOOP
        head_seq := newest;
        seqs := jobs[place + 1:place + sizes[i]];
        updated := changed[place + 1:place + sizes[i]];
        duplicate := dropped[place + 1:place + sizes[i]];
        place := place + sizes[i];
        repeated := batch_keys[i] IS NOT NULL AND NOT wrote[i];
        IF repeated THEN
            SELECT k.seqs, coalesce(k.head_seq, 0) INTO STRICT seqs, head_seq
            FROM holdfast.idempotency k
            WHERE k.topic = of_topic AND k.key = batch_keys[i];
        ELSIF wrote[i] THEN
            UPDATE holdfast.idempotency k
            SET first_seq = enqueue_deduped.seqs[1], last_seq = enqueue_deduped.seqs[sizes[i]],
                seqs = enqueue_deduped.seqs, head_seq = newest
            WHERE k.topic = of_topic AND k.key = batch_keys[i];
        END IF;
        RETURN NEXT;
        ready := 0;
        due := 0;
        touched := 0;
    END LOOP;
END $$;

--
-- Name: enqueue_keyed(text, integer, oid, bytea[], text[], text[], json[], text[], smallint[], bigint[], timestamp with time zone[], bigint[], integer[], text[], text[], bigint, boolean, integer, text[]); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.enqueue_keyed(of_topic text, of_id integer, sequence oid, payloads bytea[], tags text[], producers text[], metadata json[], tenants text[], priorities smallint[], delays_ms bigint[], run_ats timestamp with time zone[], ttls_ms bigint[], limits integer[], types text[], keys text[], topic_ttl_ms bigint, ends boolean, most_deliveries integer, grps text[] DEFAULT '{}'::text[], OUT seqs bigint[], OUT updated boolean[], OUT head_seq bigint, OUT ready integer, OUT due integer, OUT touched integer) RETURNS record
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

--
-- Name: enqueue_plain(text, integer, oid, bytea[], text[], text[], json[], text[], smallint[], bigint[], timestamp with time zone[], bigint[], integer[], text[], bigint); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.enqueue_plain(of_topic text, of_id integer, sequence oid, bytea[], text[], text[], json[], text[], smallint[], bigint[], timestamp with time zone[], bigint[], integer[], text[], bigint) RETURNS SETOF bigint[]
    LANGUAGE plpgsql
    AS $_$
BEGIN
    RETURN QUERY
    WITH clock AS MATERIALIZED (
        SELECT clock_timestamp() AS at
    ), record AS MATERIALIZED (
        SELECT r.*, c.at, greatest(r.run_at, c.at + r.delay_ms * interval '1 ms', c.at) AS starts_at
        FROM (
            SELECT u.*, nextval(sequence::regclass) AS seq
            FROM unnest($4::bytea[], $5::text[], $6::text[], $7::json[], $8::text[], $9::smallint[], $10::bigint[],
                        $11::timestamptz[], $12::bigint[], $13::integer[], $14::text[])
                WITH ORDINALITY AS u(payload, tag, producer, metadata, tenant, priority, delay_ms, run_at, ttl_ms,
                                     max_deliveries, content_type, ord)
        ) r CROSS JOIN clock c
    ), job AS (
        INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, priority, visible_at, created_at,
                                   updated_at, expires_at, max_deliveries, tag, producer, metadata, payload,
                                   content_type)
        SELECT of_topic, of_id, seq, seq,
               CASE WHEN starts_at > at THEN 'scheduled' ELSE 'ready' END::holdfast.job_state,
               coalesce(tenant, ''), coalesce(priority, 0::smallint), starts_at, at, at,
               at + nullif(coalesce(ttl_ms, $15::bigint), 0) * interval '1 ms',
               max_deliveries, tag, producer, metadata, payload, content_type
        FROM record
    ), event AS (
        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, max_deliveries, node, tenant, until)
        SELECT of_topic, of_id, seq, 'enqueued', 0, max_deliveries, producer, nullif(tenant, ''),
               CASE WHEN starts_at > at THEN starts_at END
        FROM record
    ), tally AS (
        INSERT INTO holdfast.tallies (topic_id, ready, scheduled, bytes)
        SELECT of_id, count(*) FILTER (WHERE starts_at = at), count(*) FILTER (WHERE starts_at > at),
               sum(octet_length(payload))
        FROM record
    )
    SELECT array_agg(seq ORDER BY ord) AS seqs FROM record;
END $_$;

--
-- Name: error_cluster(text); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.error_cluster(error text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT left(encode(sha256(convert_to(coalesce(holdfast.error_title(error), ''), 'UTF8')), 'hex'), 16)
$$;

--
-- Name: error_title(text); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.error_title(error text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $_$
DECLARE
    said text COLLATE "C" := ltrim(left(error, 8192), E' \t\r\n\f\x0b');
    line text COLLATE "C";
    rest text COLLATE "C";
    kind text COLLATE "C";
BEGIN
    IF position(chr(27) IN said) > 0 THEN
        said := regexp_replace(said, '\x1b\[[0-9;?]*[A-Za-z]', '', 'g');
    END IF;
    IF position(chr(13) IN said) > 0 THEN
        said := replace(replace(said, E'\r\n', E'\n'), E'\r', E'\n');
    END IF;
    IF starts_with(said, 'Traceback (most recent call last)') THEN
        -- After the last frame: a traceback may begin with the one that caused it.
        SELECT l.text INTO line FROM unnest(string_to_array(said, E'\n')) WITH ORDINALITY AS l(text, n)
        WHERE l.text ~ '^[^ \t]' AND l.n > coalesce((
            SELECT max(f.n) FROM unnest(string_to_array(said, E'\n')) WITH ORDINALITY AS f(text, n)
            WHERE f.text LIKE '  File "%'), 1)
        ORDER BY l.n LIMIT 1;
    ELSIF starts_with(said, '+ Exception Group Traceback') THEN
        SELECT regexp_replace(l.text, '^ *[|] ', '') INTO line
        FROM unnest(string_to_array(said, E'\n')) WITH ORDINALITY AS l(text, n)
        WHERE l.text ~ '^ *[|] [A-Za-z_]' ORDER BY l.n LIMIT 1;
    END IF;
    IF line IS NOT NULL THEN
        rest := substr(said, position(line IN said) + length(line));
    ELSE
        line := split_part(said, E'\n', 1);
        rest := ltrim(substr(said, length(line) + 1), E' \t\n\f\x0b');
        IF line ~ ':[ \t]*$' THEN
            line := line || ' ' || split_part(rest, E'\n', 1);
            rest := substr(rest, position(E'\n' IN rest || E'\n'));
        END IF;
    END IF;
    line := btrim(regexp_replace(
        line, '[\u0001-\u0020\u007f-\u00a0\u00ad\u200b-\u200f\u2028-\u202f\u2060-\u2069\ufeff]+',
        ' ', 'g'), ' ');
    IF length(line) > 2000 OR rest ~ '[^ \t\n\f\v]' THEN
        line := left(line, 2000) || chr(1);
    END IF;
    -- The type stays as it is: the digit in urllib3.exceptions.MaxRetryError is part of a name.
    kind := coalesce(
        substring(line FROM '(?x)^ (?: [A-Za-z_$][A-Za-z0-9_$]* (?: [.] | :: | [\\] ) )*
            [A-Za-z_$][A-Za-z0-9_$]* (?: Error|Exception|Warning|Failure|Fault|Exit|Interrupt )
            (?=[ ,;.:]|$|\u0001)'),
        substring(line FROM '(?x)^ (?: [A-Za-z_$][A-Za-z0-9_$]* [.] )+ [A-Z][A-Za-z0-9_$]* (?=[ :]|$|\u0001)'),
        '');
    rest := substr(line, length(kind) + 1);
    -- Parts that differ from case to case, one kind after the other: one pattern for all would take ten times as long.
    -- Looks for ASCII, whatever the database's locale. U+0001 ends a line that was cut.
    -- Quoted text; if it was cut, up to the cut.
    IF rest ~ $p$["'`\u201c\u201e\u00ab\u2018]$p$ THEN
        rest := regexp_replace(rest, $p$(?x)
            [bBrRuUfF]{0,2} " (?: [^"\\] | \\. )* (?: " | \u0001$ ) | " [^"]* "
            | (?<![A-Za-z0-9_]) [bBrRuUfF]{0,2} ' (?: [^'] | '(?=[A-Za-z0-9_]) )* (?: '(?![A-Za-z0-9_]) | \u0001$ )
            | ` [^`]* (?: ` | \u0001$ )
            | \u201c [^\u201d]* (?: \u201d | \u0001$ ) | \u201e [^\u201c\u201d]* (?: [\u201c\u201d] | \u0001$ )
            | \u00ab [^\u00bb]* (?: \u00bb | \u0001$ ) | \u2018 [^\u2019]* \u2019 (?![A-Za-z0-9_])
        $p$, '*', 'g');
    END IF;
    -- URLs.
    IF rest ~ $p$://$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)[A-Za-z][A-Za-z0-9+.-]* :// [^\s"'<>`]* [^\s"'<>`.,;!?)\u0001]$p$,
            '*', 'g');
    END IF;
    -- E-mail addresses.
    IF rest ~ $p$@$p$ THEN
        rest := regexp_replace(rest, $p$(?x)[A-Za-z0-9._%+-]+ @ [A-Za-z0-9-]+ (?: [.] [A-Za-z0-9-]+ )+$p$, '*', 'g');
    END IF;
    -- Paths.
    IF rest ~ $p$[/\\]$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)(?<![A-Za-z0-9_.]) (?: ~ | [.]{1,2} | [A-Za-z]: )? [/\\] [^\s"'`<>|,;:()\[\]{}\u0001]+$p$,
            '*', 'g');
    END IF;
    -- Relative paths of files.
    IF rest ~ $p$[/\\].*[.]$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)(?<![A-Za-z0-9_/]) (?: [A-Za-z0-9_.-]+ [/\\] )+ [A-Za-z0-9_-]+ (?: [.][A-Za-z0-9]{1,8} )+$p$,
            '*', 'g');
    END IF;
    -- Dates.
    IF rest ~ $p$[JFMASOND][aepuco][nbrylgptvc].*[0-9]$p$ THEN
        rest := regexp_replace(rest, $p$(?x)
            (?<![A-Za-z]) (?: (?: Mon|Tue|Wed|Thu|Fri|Sat|Sun )[a-z]*,?[ ] )? (?: [0-9]{1,2}[ -] )?
            (?: Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec )[a-z]*[ .-]+[0-9]{1,4}(?![A-Za-z])
        $p$, '*', 'g');
    END IF;
    -- Times of twelve hours.
    IF rest ~ $p$[0-9] ?[AaPp][Mm]$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)[0-9]{1,2} (?: :[0-9]{2} ){0,2} [ ]? (?: AM|PM|am|pm )(?![A-Za-z])$p$,
            '*', 'g');
    END IF;
    -- IPv6, MAC and the like.
    IF rest ~ $p$:.*:$p$ THEN
        rest := regexp_replace(rest, $p$(?x)
            (?<![A-Za-z0-9_:]) (?: (?: [0-9A-Fa-f]{0,4} : ){2,8} [0-9A-Fa-f]{1,4} | (?: [0-9A-Fa-f]{0,4} : ){1,7} : )
            (?![A-Za-z0-9_])
        $p$, '*', 'g');
    END IF;
    -- Hashes and ids in hex.
    IF rest ~ $p$[0-9A-Fa-f]{8}$p$ THEN
        rest := regexp_replace(rest, $p$(?x)(?<![A-Za-z0-9_]) [+-]? [0-9A-Fa-f]{8,} (?![A-Za-z0-9_])$p$, '*', 'g');
    END IF;
    -- Base64.
    IF rest ~ $p$[A-Za-z0-9+/_-]{20}$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)(?<![A-Za-z0-9+/_-]) (?=[A-Za-z+/_-]*[0-9]) [A-Za-z0-9+/_-]{20,}={0,2}$p$,
            '*', 'g');
    END IF;
    -- Numbers, and words that contain a digit.
    IF rest ~ $p$[0-9]$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)[+-]? (?: [A-Za-z_]+[.-]? )* [0-9] (?: [.+-]?[A-Za-z0-9_] )*$p$,
            '*', 'g');
    END IF;
    -- Lists: those of two and of three items are one kind.
    IF rest ~ $p$[*].*[*]$p$ THEN
        rest := regexp_replace(rest, $p$(?x)[*] (?: []\ ,;:./|&=+\#~(){}<>_[-]* [*] )+$p$, '*', 'g');
    END IF;
    line := left(btrim(replace(kind || rest, chr(1), ''), ' '), 200);
    RETURN CASE WHEN line = '' THEN NULL ELSE line END;
END $_$;

--
-- Name: events_from(integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.events_from(of_topic_id integer) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    SELECT greatest(
        (SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD'))::timestamp AT TIME ZONE 'UTC'
         FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'holdfast.lease_events'::regclass),
        (SELECT now() - nullif(t.event_ttl_ms, 0) * interval '1 ms' FROM holdfast.topics t
         WHERE t.id = of_topic_id))
$$;

--
-- Name: fill_topic_stats(timestamp with time zone, timestamp with time zone); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.fill_topic_stats(since timestamp with time zone, before timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_bitmapscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_hashagg TO 'on'
    SET enable_hashjoin TO 'on'
    SET plan_cache_mode TO 'force_custom_plan'
    SET max_parallel_workers_per_gather TO '0'
    SET work_mem TO '32MB'
    AS $$
DECLARE
    filled bigint;
BEGIN
    WITH seen AS MATERIALIZED (
        SELECT date_bin('1 minute', e.at, 'epoch') AS minute, e.topic_id, e.tenant, e.event,
               e.event = 'claimed' AND e.deliveries > 1 AS again,
               CASE WHEN e.event IN ('claimed', 'acked')
                    THEN greatest((date_part('epoch', e.at - e.began_at) * 1000000)::bigint / 1000, 0) END AS ms,
               min(e.topic) AS topic, count(*) AS n
        FROM holdfast.lease_events e
        WHERE e.at >= since AND e.at < before
          AND e.event IN ('enqueued', 'claimed', 'acked', 'failed', 'dead_lettered', 'expired', 'cancelled')
        GROUP BY 1, 2, 3, 4, 5, 6
    ), counted AS (
        SELECT s.minute, s.topic_id, s.tenant, min(s.topic) AS topic,
               coalesce(sum(s.n) FILTER (WHERE s.event = 'enqueued'), 0) AS enqueued,
               coalesce(sum(s.n) FILTER (WHERE s.event = 'acked'), 0) AS completed,
               coalesce(sum(s.n) FILTER (WHERE s.event IN ('failed', 'dead_lettered')), 0) AS failed,
               coalesce(sum(s.n) FILTER (WHERE s.again), 0) AS retried,
               coalesce(sum(s.n) FILTER (WHERE s.event = 'dead_lettered'), 0) AS dead_lettered,
               coalesce(sum(s.n) FILTER (WHERE s.event = 'expired'), 0) AS expired,
               coalesce(sum(s.n) FILTER (WHERE s.event = 'cancelled'), 0) AS cancelled
        FROM seen s GROUP BY s.minute, s.topic_id, s.tenant
    ), ranked AS (
        SELECT s.minute, s.topic_id, s.tenant, s.event, s.ms, sum(s.n) AS n,
               sum(sum(s.n)) OVER (PARTITION BY s.minute, s.topic_id, s.tenant, s.event ORDER BY s.ms) AS upto,
               sum(sum(s.n)) OVER (PARTITION BY s.minute, s.topic_id, s.tenant, s.event) AS total
        FROM seen s WHERE s.ms IS NOT NULL GROUP BY s.minute, s.topic_id, s.tenant, s.event, s.ms
    ), bucketed AS (
        SELECT r.minute, r.topic_id, r.tenant, r.event, holdfast.duration_bucket(r.ms) AS bucket,
               sum(r.n)::bigint AS n, min(r.total) AS total,
               min(r.ms) FILTER (WHERE r.upto * 100 >= r.total * 50) AS p50,
               min(r.ms) FILTER (WHERE r.upto * 100 >= r.total * 95) AS p95,
               min(r.ms) FILTER (WHERE r.upto * 100 >= r.total * 99) AS p99
        FROM ranked r GROUP BY 1, 2, 3, 4, 5
    ), timed AS (
        SELECT u.minute, u.topic_id, u.tenant, u.event, min(u.total) AS total, min(u.p50) AS p50, min(u.p95) AS p95,
               min(u.p99) AS p99, array_agg(u.bucket ORDER BY u.bucket) AS buckets,
               array_agg(u.n ORDER BY u.bucket) AS counts
        FROM bucketed u GROUP BY u.minute, u.topic_id, u.tenant, u.event
    )
    INSERT INTO holdfast.topic_stats AS t
    SELECT c.minute, c.topic_id, c.topic, coalesce(c.tenant, ''), c.enqueued, c.completed, c.failed, c.retried,
           c.dead_lettered, c.expired, c.cancelled,
           coalesce(w.total, 0), w.p50, w.p95, w.p99, coalesce(w.buckets, '{}'), coalesce(w.counts, '{}'),
           coalesce(p.total, 0), p.p50, p.p95, p.p99, coalesce(p.buckets, '{}'), coalesce(p.counts, '{}')
    FROM counted c
    LEFT JOIN timed w ON w.minute = c.minute AND w.topic_id = c.topic_id
        AND coalesce(w.tenant, '') = coalesce(c.tenant, '') AND w.event = 'claimed'
    LEFT JOIN timed p ON p.minute = c.minute AND p.topic_id = c.topic_id
        AND coalesce(p.tenant, '') = coalesce(c.tenant, '') AND p.event = 'acked'
    ORDER BY c.topic_id, c.minute, coalesce(c.tenant, '')
    ON CONFLICT (topic_id, minute, tenant) DO UPDATE
    SET topic = excluded.topic, enqueued = excluded.enqueued, completed = excluded.completed,
        failed = excluded.failed, retried = excluded.retried, dead_lettered = excluded.dead_lettered,
        expired = excluded.expired, cancelled = excluded.cancelled, wait_count = excluded.wait_count,
        wait_p50_ms = excluded.wait_p50_ms, wait_p95_ms = excluded.wait_p95_ms, wait_p99_ms = excluded.wait_p99_ms,
        wait_buckets = excluded.wait_buckets, wait_counts = excluded.wait_counts,
        processing_count = excluded.processing_count, processing_p50_ms = excluded.processing_p50_ms,
        processing_p95_ms = excluded.processing_p95_ms, processing_p99_ms = excluded.processing_p99_ms,
        processing_buckets = excluded.processing_buckets, processing_counts = excluded.processing_counts;
    GET DIAGNOSTICS filled = ROW_COUNT;
    RETURN filled;
END $$;

--
-- Name: find_fault(text, text, text); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.find_fault(payload text, content_type text, metadata text) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    reason text;
BEGIN
    BEGIN
        IF jsonb_typeof(metadata::jsonb) <> 'object' THEN
            RETURN 'metadata is not a JSON object';
        END IF;
    EXCEPTION WHEN data_exception OR statement_too_complex THEN
        GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
        RETURN 'metadata is not JSON that can be stored: ' || left(coalesce(nullif(reason, ''), SQLERRM), 300);
    END;
    IF holdfast.json_depth(metadata) > 128 THEN
        RETURN 'metadata is nested more than 128 levels deep';
    END IF;
    IF (find_fault.content_type IS NULL OR find_fault.content_type ~* '^ *(application/json|[^;]*\+json) *(;|$)') THEN
        BEGIN
            PERFORM payload::jsonb;
        EXCEPTION WHEN data_exception OR statement_too_complex THEN
            GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
            RETURN 'the payload is not JSON that can be stored, as '
                   || coalesce(find_fault.content_type, 'application/json (no content_type)') || ' requires: '
                   || left(coalesce(nullif(reason, ''), SQLERRM), 300);
        END;
        IF holdfast.json_depth(payload) > 128 THEN
            RETURN 'the payload is nested more than 128 levels deep';
        END IF;
    END IF;
    RETURN NULL;
END $_$;

--
-- Name: free_group(); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.free_group() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) VALUES (OLD.topic_id, OLD.tenant, OLD.grp);
    RETURN NULL;
END $$;

--
-- Name: has_data(bytea, text, text[], integer[], text[]); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.has_data(payload bytea, content_type text, keys text[], ends integer[], wanted text[]) RETURNS boolean
    LANGUAGE plpgsql STABLE COST 1000
    AS $_$
DECLARE
    document json;
    there json;
    kind text;
BEGIN
    IF lower(btrim(split_part(content_type, ';', 1))) !~ '^application/json$|\+json$' THEN
        RETURN false;
    END IF;
    document := convert_from(payload, 'UTF8')::json;
    FOR n IN 1 .. cardinality(wanted) LOOP
        there := document #> keys[coalesce(ends[n - 1], 0) + 1 : ends[n]];
        kind := coalesce(json_typeof(there), 'object');
        IF kind IN ('object', 'array') OR coalesce(there #>> '{}', 'null') <> wanted[n] THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN false;
END $_$;

--
-- Name: hold_stage(); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.hold_stage() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
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

--
-- Name: lease_events; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.lease_events (
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    tx xid8 DEFAULT pg_current_xact_id() NOT NULL,
    seq bigint NOT NULL,
    until timestamp with time zone,
    topic_id integer NOT NULL,
    deliveries integer NOT NULL,
    event holdfast.job_event NOT NULL,
    lease_id uuid,
    topic text NOT NULL COLLATE pg_catalog."C",
    node text,
    detail text,
    began_at timestamp with time zone,
    tenant text COLLATE pg_catalog."C",
    grp text COLLATE pg_catalog."C",
    max_deliveries integer
)
PARTITION BY RANGE (at);

--
-- Name: job_events(integer, bigint, timestamp with time zone, integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.job_events(of_topic_id integer, of_seq bigint, since timestamp with time zone, most integer) RETURNS SETOF holdfast.lease_events
    LANGUAGE plpgsql STABLE
    SET enable_bitmapscan TO 'on'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
DECLARE
    first_at CONSTANT timestamptz := greatest(
        since, holdfast.events_from(of_topic_id),
        (SELECT t.created_at FROM holdfast.topics t WHERE t.id = of_topic_id));
BEGIN
    RETURN QUERY
    SELECT e.* FROM holdfast.lease_events e
    WHERE e.topic_id = of_topic_id AND e.seq = of_seq AND e.at >= first_at
    ORDER BY e.at LIMIT most;
END $$;

--
-- Name: jobs_as_of(text, integer, timestamp with time zone, text, bigint, integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.jobs_as_of(of_topic text, of_topic_id integer, instant timestamp with time zone, wanted text, behind bigint, most integer) RETURNS TABLE(seq bigint, state text, began timestamp with time zone, deliveries integer, until timestamp with time zone, node text)
    LANGUAGE plpgsql STABLE
    SET enable_bitmapscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'on'
    SET plan_cache_mode TO 'force_custom_plan'
    SET work_mem TO '64MB'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
#variable_conflict use_column
DECLARE
    first_at timestamptz;
    older boolean;    -- whether it may have jobs from before `since`
    letters text;     -- its dead-letter topic
    letters_id integer;
BEGIN
    SELECT greatest(f.at, t.created_at), t.created_at < f.at, d.name, d.id
    INTO first_at, older, letters, letters_id
    FROM holdfast.events_from(of_topic_id) AS f(at)
    LEFT JOIN holdfast.topics t ON t.name = of_topic AND t.id = of_topic_id
    LEFT JOIN holdfast.topics d ON d.name = coalesce(t.dead_letter, t.name || '.dlq');
    IF older AND instant < first_at THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH told AS MATERIALIZED (
        SELECT DISTINCT ON (e.topic_id, e.seq) e.topic_id, e.seq, e.event, e.at, e.until, e.deliveries, e.node,
               coalesce(e.until, e.at) AS since, coalesce(e.detail, '') AS detail,
               bool_or(e.event = 'updated' AND e.until IS NULL) OVER job AS cancelled,
               max(e.at) FILTER (WHERE e.event = 'claimed') OVER job AS claimed_at,
               max(e.at) FILTER (WHERE e.event = 'enqueued') OVER job AS came_at,
               max(e.detail) FILTER (WHERE e.event = 'enqueued') OVER job AS came
        FROM holdfast.lease_events e
        WHERE e.topic_id IN (of_topic_id, letters_id) AND e.at >= first_at AND e.at <= instant
          AND (e.event <> 'updated' OR e.until IS NOT NULL OR e.detail = 'to be cancelled')
          AND (e.seq > behind OR e.topic_id = letters_id)
        WINDOW job AS (PARTITION BY e.topic_id, e.seq)
        ORDER BY e.topic_id, e.seq, e.event = 'updated' AND e.until IS NULL, e.at DESC, e.tx DESC
    ), placed AS MATERIALIZED (
        SELECT l.topic_id, l.seq, l.at, l.since, l.claimed_at, l.came_at, l.came, l.deliveries, l.until, l.node,
               CASE WHEN l.event = 'requeued' AND starts_with(l.detail, 'to ') THEN 'gone'
                    WHEN (l.event = 'enqueued' AND l.detail LIKE '%blocked')
                         OR (l.event = 'requeued' AND l.until IS NULL) THEN 'blocked'
                    WHEN l.event IN ('claimed', 'extended') AND l.until >= instant THEN 'leased'
                    WHEN l.event IN ('claimed', 'extended') AND l.cancelled THEN 'gone'
                    WHEN l.event IN ('enqueued', 'unblocked', 'released', 'requeued', 'updated')
                         AND l.since > instant THEN 'scheduled'
                    WHEN l.event IN ('enqueued', 'unblocked', 'released', 'requeued', 'updated', 'claimed',
                                     'extended') THEN 'ready'
                    WHEN l.event IN ('failed', 'expired', 'dead_lettered') THEN l.event::text
                    ELSE 'gone' END AS state
        FROM told l
        WHERE NOT (l.event = 'updated' AND l.until IS NULL)  -- the next event tells where it was
    ), away AS MATERIALIZED (
        SELECT x.came, max(x.came_at) AS came_at FROM placed x
        WHERE x.topic_id = letters_id AND x.state = 'gone' GROUP BY x.came
    ), own AS (
        SELECT p.seq, p.at, p.since, p.claimed_at, p.deliveries, p.until, p.node,
               CASE WHEN p.state = 'dead_lettered' AND a.came_at >= p.at THEN 'gone' ELSE p.state END AS state
        FROM placed p LEFT JOIN away a ON a.came = 'from ' || of_topic || ' ' || p.seq
        WHERE p.topic_id = of_topic_id
    ), next AS MATERIALIZED (
        SELECT DISTINCT ON (e.seq) e.seq, e.event, e.lease_id IS NOT NULL AS held, coalesce(e.detail, '') AS detail,
               e.deliveries, e.node
        FROM holdfast.lease_events e
        WHERE older AND e.topic_id = of_topic_id AND e.at > instant AND e.at >= first_at AND e.seq > behind
          AND (e.event <> 'updated' OR e.until IS NOT NULL OR e.detail = 'to be cancelled')
          AND NOT EXISTS (SELECT FROM own o WHERE o.seq = e.seq)
        ORDER BY e.seq, e.at, e.tx
    ), still AS (
        SELECT j.seq, j.state::text AS state, j.visible_at, j.cancelled_at IS NOT NULL AS cancelled, j.deliveries,
               j.leased_at, j.node
        FROM holdfast.jobs j
        WHERE older AND j.topic = of_topic AND j.topic_id = of_topic_id AND j.created_at < first_at
          AND j.seq > behind
          AND NOT EXISTS (SELECT FROM own o WHERE o.seq = j.seq)
          AND NOT EXISTS (SELECT FROM next n WHERE n.seq = j.seq)
    ), job AS (
        SELECT o.seq, o.state,
               CASE WHEN o.state = 'leased' THEN coalesce(o.claimed_at, o.at)
                    WHEN o.state = 'ready' THEN greatest(o.at, o.since) ELSE o.at END AS began,
               o.deliveries, o.until, o.node
        FROM own o
        UNION ALL
        SELECT n.seq,
               CASE WHEN n.event = 'enqueued' THEN 'gone'
                    WHEN n.event = 'requeued' AND starts_with(n.detail, 'from ') THEN 'dead_lettered'
                    WHEN n.event IN ('requeued', 'deleted') AND starts_with(n.detail, 'was ')
                         AND n.detail <> 'was leased' THEN substr(n.detail, 5)
                    WHEN n.event = 'unblocked' THEN 'blocked'
                    WHEN n.event IN ('extended', 'acked', 'released')
                         OR (n.event = 'updated' AND n.detail = 'to be cancelled')
                         OR (n.event IN ('failed', 'expired', 'dead_lettered', 'deleted', 'superseded', 'cancelled')
                             AND n.held) THEN 'leased'
                    ELSE 'ready' END, NULL,
               CASE WHEN n.event = 'claimed' THEN n.deliveries - 1
                    WHEN n.event NOT IN ('requeued', 'released') THEN n.deliveries END, NULL, n.node
        FROM next n
        UNION ALL
        SELECT s.seq,
               CASE WHEN s.state NOT IN ('ready', 'scheduled', 'leased') THEN s.state
                    WHEN s.state = 'leased' AND s.visible_at >= instant THEN 'leased'
                    WHEN s.state = 'leased' AND s.cancelled THEN 'gone'
                    WHEN s.visible_at > instant THEN 'scheduled' ELSE 'ready' END,
               CASE WHEN s.state = 'leased' AND s.visible_at >= instant THEN s.leased_at END,
               s.deliveries, s.visible_at, s.node
        FROM still s
        UNION ALL
        SELECT j.original_seq, 'dead_lettered', j.dlq_moved_at, j.original_deliveries, NULL, NULL
        FROM holdfast.jobs j
        WHERE older AND j.topic = letters AND j.topic_id = letters_id AND j.dlq_moved_at < first_at
          AND j.original_topic = of_topic AND j.original_seq > behind
          AND NOT EXISTS (SELECT FROM own o WHERE o.seq = j.original_seq)
    )
    SELECT j.seq, j.state, j.began, j.deliveries,
           CASE WHEN j.state IN ('leased', 'scheduled') THEN j.until END,
           CASE WHEN j.state = 'leased' THEN j.node END
    FROM job j WHERE j.state <> 'gone' AND (wanted IS NULL OR j.state = wanted)
    ORDER BY j.seq LIMIT most;
END $$;

--
-- Name: json_depth(text); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.json_depth(document text) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT coalesce(max(d.depth), 0) FROM (
        SELECT sum(CASE WHEN b.bracket IN ('[', '{') THEN 1 ELSE -1 END) OVER (ORDER BY b.ord) AS depth
        FROM unnest(string_to_array(
            regexp_replace(regexp_replace(document, '"([^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g'), NULL
        )) WITH ORDINALITY AS b(bracket, ord)
    ) d
$$;

--
-- Name: last_events(integer, bigint, integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.last_events(of_topic_id integer, of_seq bigint, most integer) RETURNS SETOF holdfast.lease_events
    LANGUAGE plpgsql STABLE
    SET enable_bitmapscan TO 'on'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
DECLARE
    first_at CONSTANT timestamptz := greatest(
        '-infinity', holdfast.events_from(of_topic_id),
        (SELECT t.created_at FROM holdfast.topics t WHERE t.id = of_topic_id));
BEGIN
    RETURN QUERY
    SELECT e.* FROM holdfast.lease_events e
    WHERE e.topic_id = of_topic_id AND e.seq = of_seq AND e.at >= first_at
    ORDER BY e.at DESC, e.tx DESC LIMIT most;
END $$;

--
-- Name: let_next(text, integer, oid, text[], text[]); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.let_next(of_topic text, of_id integer, sequence oid, tenants text[], grps text[], OUT ready integer, OUT scheduled integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
BEGIN
    WITH idle AS MATERIALIZED (
        SELECT g.tenant, g.grp, f.seq
        FROM unnest(tenants, grps) AS g(tenant, grp)
        LEFT JOIN LATERAL (
            SELECT j.seq FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.tenant = g.tenant AND j.grp = g.grp AND j.state = 'blocked'
            ORDER BY j.seq LIMIT 1
        ) f ON true
        LEFT JOIN LATERAL (
            SELECT true AS there FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.tenant = g.tenant AND j.grp = g.grp AND j.grp IS NOT NULL
              AND j.original_topic IS NULL AND j.state IN ('ready', 'scheduled', 'leased')
            LIMIT 1
        ) o ON true
        WHERE o.there IS NULL
    ), over AS (
        DELETE FROM holdfast.groups g USING idle i
        WHERE i.seq IS NULL AND g.topic_id = of_id AND g.tenant = i.tenant AND g.grp = i.grp
    ), picked AS MATERIALIZED (
        SELECT i.tenant, i.grp, x.tid FROM (SELECT * FROM idle WHERE seq IS NOT NULL ORDER BY seq) i
        LEFT JOIN LATERAL (
            SELECT j.ctid AS tid FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.seq = i.seq AND j.state::text = 'blocked'
            LIMIT 1 FOR UPDATE SKIP LOCKED
        ) x ON true
    ), done AS (
        UPDATE holdfast.jobs j
        SET state = CASE WHEN j.visible_at > clock_timestamp() THEN 'scheduled' ELSE 'ready'
                    END::holdfast.job_state,
            position = nextval(sequence::regclass)
        FROM picked p WHERE j.ctid = p.tid
        RETURNING j.seq, j.state, j.visible_at, j.deliveries
    ), event AS (
        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, until)
        SELECT of_topic, of_id, d.seq, 'unblocked', d.deliveries,
               CASE WHEN d.state = 'scheduled' THEN d.visible_at END
        FROM done d
    ), tally AS (
        INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked)
        SELECT of_id, count(*) FILTER (WHERE d.state = 'ready'),
               count(*) FILTER (WHERE d.state = 'scheduled'), -count(*)
        FROM done d HAVING count(*) > 0
    ), again AS (
        INSERT INTO holdfast.freed_groups (topic_id, tenant, grp)
        -- If a job changed before it was locked, all groups get notes: a note too many does no harm.
        SELECT of_id, p.tenant, p.grp FROM picked p
        WHERE p.tid IS NULL OR (SELECT count(*) FROM done) < (SELECT count(q.tid) FROM picked q)
    )
    SELECT count(*) FILTER (WHERE d.state = 'ready'), count(*) FILTER (WHERE d.state = 'scheduled')
    INTO ready, scheduled FROM done d;
END $$;

--
-- Name: lock_groups(integer, text[], text[]); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.lock_groups(of_id integer, tenants text[], grps text[]) RETURNS TABLE(tenant text, grp text, fresh boolean)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    INSERT INTO holdfast.groups AS g (topic_id, tenant, grp, fresh)
    SELECT of_id, o.tenant, o.grp, true
    FROM (SELECT DISTINCT coalesce(u.tenant, '') COLLATE "C" AS tenant, u.grp COLLATE "C" AS grp
          FROM unnest(tenants, grps) AS u(tenant, grp) WHERE u.grp IS NOT NULL) o
    ORDER BY o.tenant, o.grp
    ON CONFLICT (topic_id, tenant, grp) DO UPDATE SET fresh = false
    RETURNING g.tenant, g.grp, g.fresh;
END $$;

--
-- Name: log_state; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.log_state (
    version bigint NOT NULL,
    head_seq bigint DEFAULT 0 NOT NULL,
    earliest_seq bigint DEFAULT 1 NOT NULL,
    count bigint DEFAULT 0 NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    cap_lost_to bigint DEFAULT 0 NOT NULL,
    ttl_lost_to bigint DEFAULT 0 NOT NULL,
    written_at timestamp with time zone,
    topic_id integer NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT log_state_bytes_check CHECK ((bytes >= 0)),
    CONSTRAINT log_state_check CHECK (((earliest_seq >= 1) AND (earliest_seq <= (head_seq + 1)))),
    CONSTRAINT log_state_count_check CHECK ((count >= 0))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

--
-- Name: lock_log(text, integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.lock_log(of_topic text, of_id integer) RETURNS holdfast.log_state
    LANGUAGE plpgsql
    AS $$
DECLARE
    s holdfast.log_state;
BEGIN
    PERFORM pg_advisory_xact_lock(1819240306, of_id);
    -- A statement of its own, so that its snapshot is taken after the lock.
    SELECT * INTO s FROM holdfast.log_state l
    WHERE l.topic = of_topic AND l.topic_id = of_id ORDER BY l.version DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE undefined_object USING MESSAGE = format('there is no log %s with id %s', of_topic, of_id);
    END IF;
    RETURN s;
END $$;

--
-- Name: lock_pending(text, text, text); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.lock_pending(of_topic text, of_tenant text, of_key text, OUT seq bigint, OUT state holdfast.job_state, OUT updated_at timestamp with time zone, OUT deliveries integer, OUT bytes bigint) RETURNS record
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

--
-- Name: merge_latency(uuid, timestamp with time zone, timestamp with time zone, text, bigint); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.merge_latency(of_run uuid, since timestamp with time zone, before timestamp with time zone, of_topic text, expected bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'on'
    SET enable_hashjoin TO 'on'
    SET enable_hashagg TO 'on'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
DECLARE
    told_to timestamptz;
    staged bigint;
    put bigint;
    cleared bigint;
BEGIN
    SELECT p.filled_to INTO told_to FROM holdfast.topic_stats_progress p FOR UPDATE;
    IF before > told_to THEN
        RAISE EXCEPTION 'minutes from % on are not complete yet', told_to USING ERRCODE = 'object_in_use';
    END IF;
    SELECT count(DISTINCT (s.topic_id, s.minute, s.tenant)) INTO staged FROM holdfast.topic_stats_staged s
    WHERE s.run = of_run AND s.minute >= since AND s.minute < before;
    IF staged <> expected THEN
        RAISE EXCEPTION '% rows are staged, % were expected', staged, expected USING ERRCODE = 'data_exception';
    END IF;
    INSERT INTO holdfast.topic_stats AS t (
        minute, topic_id, topic, tenant, wait_count, wait_p50_ms, wait_p95_ms, wait_p99_ms, wait_buckets,
        wait_counts, processing_count, processing_p50_ms, processing_p95_ms, processing_p99_ms, processing_buckets,
        processing_counts)
    SELECT DISTINCT ON (s.topic_id, s.minute, s.tenant)  -- a task that ran again has staged its rows again
           s.minute, s.topic_id, s.topic, s.tenant, s.wait_count, s.wait_p50_ms, s.wait_p95_ms, s.wait_p99_ms,
           s.wait_buckets, s.wait_counts, s.processing_count, s.processing_p50_ms, s.processing_p95_ms,
           s.processing_p99_ms, s.processing_buckets, s.processing_counts
    FROM holdfast.topic_stats_staged s WHERE s.run = of_run
    ORDER BY s.topic_id, s.minute, s.tenant
    ON CONFLICT (topic_id, minute, tenant) DO UPDATE
    SET wait_count = excluded.wait_count, wait_p50_ms = excluded.wait_p50_ms, wait_p95_ms = excluded.wait_p95_ms,
        wait_p99_ms = excluded.wait_p99_ms, wait_buckets = excluded.wait_buckets,
        wait_counts = excluded.wait_counts, processing_count = excluded.processing_count,
        processing_p50_ms = excluded.processing_p50_ms, processing_p95_ms = excluded.processing_p95_ms,
        processing_p99_ms = excluded.processing_p99_ms, processing_buckets = excluded.processing_buckets,
        processing_counts = excluded.processing_counts
    WHERE (t.wait_count, t.wait_p50_ms, t.wait_p95_ms, t.wait_p99_ms, t.wait_buckets, t.wait_counts,
           t.processing_count, t.processing_p50_ms, t.processing_p95_ms, t.processing_p99_ms, t.processing_buckets,
           t.processing_counts) IS DISTINCT FROM (excluded.wait_count, excluded.wait_p50_ms, excluded.wait_p95_ms,
           excluded.wait_p99_ms, excluded.wait_buckets, excluded.wait_counts, excluded.processing_count,
           excluded.processing_p50_ms, excluded.processing_p95_ms, excluded.processing_p99_ms,
           excluded.processing_buckets, excluded.processing_counts);
    GET DIAGNOSTICS put = ROW_COUNT;
    UPDATE holdfast.topic_stats t
    SET wait_count = 0, wait_p50_ms = NULL, wait_p95_ms = NULL, wait_p99_ms = NULL, wait_buckets = '{}',
        wait_counts = '{}', processing_count = 0, processing_p50_ms = NULL, processing_p95_ms = NULL,
        processing_p99_ms = NULL, processing_buckets = '{}', processing_counts = '{}'
    WHERE t.minute >= since AND t.minute < before AND (of_topic IS NULL OR t.topic = of_topic)
      AND (t.wait_count, t.wait_p50_ms, t.wait_p95_ms, t.wait_p99_ms, t.wait_buckets, t.wait_counts,
           t.processing_count, t.processing_p50_ms, t.processing_p95_ms, t.processing_p99_ms, t.processing_buckets,
           t.processing_counts) IS DISTINCT FROM (0, NULL, NULL, NULL, '{}', '{}', 0, NULL, NULL, NULL, '{}', '{}')
      AND NOT EXISTS (
          SELECT FROM holdfast.topic_stats_staged s
          WHERE s.run = of_run AND s.topic_id = t.topic_id AND s.minute = t.minute AND s.tenant = t.tenant
      );
    GET DIAGNOSTICS cleared = ROW_COUNT;
    DELETE FROM holdfast.topic_stats t
    WHERE t.minute >= since AND t.minute < before AND (of_topic IS NULL OR t.topic = of_topic)
      AND (t.enqueued, t.completed, t.failed, t.retried, t.dead_lettered, t.expired, t.cancelled, t.wait_count,
           t.processing_count)
          = (0, 0, 0, 0, 0, 0, 0, 0, 0);
    DELETE FROM holdfast.topic_stats_staged s WHERE s.run = of_run;
    RETURN put + cleared;
END $$;

--
-- Name: merge_throughput(uuid, timestamp with time zone, timestamp with time zone, text, bigint); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.merge_throughput(of_run uuid, since timestamp with time zone, before timestamp with time zone, of_topic text, expected bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'on'
    SET enable_hashjoin TO 'on'
    SET enable_hashagg TO 'on'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
DECLARE
    told_to timestamptz;
    staged bigint;
    put bigint;
    cleared bigint;
BEGIN
    SELECT p.filled_to INTO told_to FROM holdfast.topic_stats_progress p FOR UPDATE;
    IF before > told_to THEN
        RAISE EXCEPTION 'minutes from % on are not complete yet', told_to USING ERRCODE = 'object_in_use';
    END IF;
    SELECT count(DISTINCT (s.topic_id, s.minute, s.tenant)) INTO staged FROM holdfast.topic_stats_staged s
    WHERE s.run = of_run AND s.minute >= since AND s.minute < before;
    IF staged <> expected THEN
        RAISE EXCEPTION '% rows are staged, % were expected', staged, expected USING ERRCODE = 'data_exception';
    END IF;
    INSERT INTO holdfast.topic_stats AS t (
        minute, topic_id, topic, tenant, enqueued, completed, failed, retried, dead_lettered, expired, cancelled)
    SELECT DISTINCT ON (s.topic_id, s.minute, s.tenant)  -- a task that ran again has staged its rows again
           s.minute, s.topic_id, s.topic, s.tenant, s.enqueued, s.completed, s.failed, s.retried, s.dead_lettered,
           s.expired, s.cancelled
    FROM holdfast.topic_stats_staged s WHERE s.run = of_run
    ORDER BY s.topic_id, s.minute, s.tenant
    ON CONFLICT (topic_id, minute, tenant) DO UPDATE
    SET enqueued = excluded.enqueued, completed = excluded.completed, failed = excluded.failed,
        retried = excluded.retried, dead_lettered = excluded.dead_lettered, expired = excluded.expired,
        cancelled = excluded.cancelled
    WHERE (t.enqueued, t.completed, t.failed, t.retried, t.dead_lettered, t.expired, t.cancelled) IS DISTINCT FROM
           (excluded.enqueued, excluded.completed, excluded.failed, excluded.retried, excluded.dead_lettered,
           excluded.expired, excluded.cancelled);
    GET DIAGNOSTICS put = ROW_COUNT;
    UPDATE holdfast.topic_stats t
    SET enqueued = 0, completed = 0, failed = 0, retried = 0, dead_lettered = 0, expired = 0, cancelled = 0
    WHERE t.minute >= since AND t.minute < before AND (of_topic IS NULL OR t.topic = of_topic)
      AND (t.enqueued, t.completed, t.failed, t.retried, t.dead_lettered, t.expired, t.cancelled) IS DISTINCT FROM
           (0, 0, 0, 0, 0, 0, 0)
      AND NOT EXISTS (
          SELECT FROM holdfast.topic_stats_staged s
          WHERE s.run = of_run AND s.topic_id = t.topic_id AND s.minute = t.minute AND s.tenant = t.tenant
      );
    GET DIAGNOSTICS cleared = ROW_COUNT;
    DELETE FROM holdfast.topic_stats t
    WHERE t.minute >= since AND t.minute < before AND (of_topic IS NULL OR t.topic = of_topic)
      AND (t.enqueued, t.completed, t.failed, t.retried, t.dead_lettered, t.expired, t.cancelled, t.wait_count,
           t.processing_count)
          = (0, 0, 0, 0, 0, 0, 0, 0, 0);
    DELETE FROM holdfast.topic_stats_staged s WHERE s.run = of_run;
    RETURN put + cleared;
END $$;

--
-- Name: message_id(integer, bigint); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.message_id(topic_id integer, seq bigint) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
    SELECT (lpad(to_hex($1), 8, '0') || '0000800' || to_hex($2 >> 62)
            || to_hex((-9223372036854775808) | ($2 & 4611686018427387903)))::uuid
$_$;

--
-- Name: nack_keyed(text, bigint[], uuid[], text[], bigint[], text[], smallint[], json); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.nack_keyed(of_topic text, given bigint[], leases uuid[], nodes text[], delays_ms bigint[], errors text[], refunds smallint[], backoff json, OUT done integer[], OUT superseded integer[], OUT refunded integer[], OUT delays bigint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    r record;
    p record;
    job holdfast.jobs;
    lease uuid;
    holder text;
    fits boolean;
    given_back boolean;
    delay bigint;
    id integer;
    n_ready integer := 0;
    n_scheduled integer := 0;
    n_blocked integer := 0;
    n_leased integer := 0;
    n_bytes bigint := 0;
BEGIN
    done := '{}';
    superseded := '{}';
    refunded := '{}';
    delays := '{}';
    PERFORM x.seq FROM unnest(given) WITH ORDINALITY AS a(seq, ord) CROSS JOIN LATERAL (
        SELECT j.seq FROM holdfast.jobs j
        WHERE j.topic = of_topic AND j.seq = a.seq AND j.state::text = 'leased' FOR UPDATE
    ) x;
    FOR r IN
        SELECT a.*, x.tenant, x.key
        FROM unnest(given, leases, nodes, delays_ms, errors, refunds)
            WITH ORDINALITY AS a(seq, lease, node, delay_ms, error, refund, ord)
        CROSS JOIN LATERAL (
            SELECT j.tenant, j.key FROM holdfast.jobs j WHERE j.topic = of_topic AND j.seq = a.seq OFFSET 0
        ) x
        ORDER BY x.tenant, x.key, a.seq
    LOOP
        DELETE FROM holdfast.jobs j
        WHERE j.topic = of_topic AND j.seq = r.seq AND j.state::text = 'leased' AND j.visible_at >= now()
          AND j.cancelled_at IS NULL
          AND (r.lease IS NULL OR j.lease_id = r.lease) AND (r.node IS NULL OR j.node = r.node)
        RETURNING j.* INTO job;
        CONTINUE WHEN NOT FOUND;
        done := done || r.ord::integer;
        id := job.topic_id;
        n_leased := n_leased - 1;
        lease := job.lease_id;
        holder := job.node;
        job.state := 'scheduled';
        given_back := r.refund IS NULL OR job.refunds < r.refund;
        IF given_back AND r.refund IS NOT NULL THEN
            job.refunds := job.refunds + 1;
            refunded := refunded || r.ord::integer;
        END IF;
        delay := coalesce(r.delay_ms, CASE WHEN given_back THEN 0
                                           ELSE holdfast.backoff_ms(backoff, job.deliveries) END, 0);
        job.visible_at := clock_timestamp() + delay * interval '1 ms';
        job.lease_id := NULL;
        job.node := NULL;
        job.deliveries := job.deliveries - given_back::integer;
        job.last_error := coalesce(r.error, job.last_error);
        fits := false;
        FOR attempt IN 1..100 LOOP
            p := holdfast.lock_pending(of_topic, job.tenant, job.key);
            IF p.seq IS NOT NULL THEN
                IF p.updated_at >= job.updated_at OR job.expires_at <= clock_timestamp() THEN
                    superseded := superseded || r.ord::integer;
                    n_bytes := n_bytes - octet_length(job.payload);
                    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node,
                                                       detail)
                    VALUES (of_topic, id, job.seq, 'superseded', job.deliveries, lease, holder,
                            'by ' || p.seq);
                    fits := true;
                    EXIT;
                END IF;
                DELETE FROM holdfast.jobs j WHERE j.topic = of_topic AND j.seq = p.seq;
                n_ready := n_ready - (p.state = 'ready')::integer;
                n_scheduled := n_scheduled - (p.state = 'scheduled')::integer;
                n_blocked := n_blocked - (p.state = 'blocked')::integer;
                n_bytes := n_bytes - p.bytes;
                INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, detail)
                VALUES (of_topic, id, p.seq, 'superseded', p.deliveries, 'by ' || job.seq);
            END IF;
            IF holdfast.put_pending(job) THEN
                n_scheduled := n_scheduled + 1;
                delays := delays || delay;
                INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, until,
                                                   detail, began_at, tenant)
                VALUES (of_topic, id, job.seq, 'released', job.deliveries, lease, holder,
                        job.visible_at, r.error, job.leased_at, nullif(job.tenant, ''));
                fits := true;
                EXIT;
            END IF;
        END LOOP;
        IF NOT fits THEN
            RAISE serialization_failure USING MESSAGE = 'a pending job came and went each time';
        END IF;
    END LOOP;
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes)
    SELECT id, n_ready, n_scheduled, n_blocked, n_leased, n_bytes WHERE n_leased < 0;
END $$;

--
-- Name: open_stage(text); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.open_stage(of_run text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
DECLARE
    opened bigint;
BEGIN
    INSERT INTO holdfast.stages (run) VALUES (of_run) RETURNING attempt INTO opened;
    RETURN opened;
END $$;

--
-- Name: promote(text, integer, oid, integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.promote(of_topic text, of_id integer, sequence oid, most integer, OUT freed integer, OUT ready integer, OUT scheduled integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    tenants text[];
    grps text[];
BEGIN
    ready := 0;
    scheduled := 0;
    -- Locks the sequence until the end of the transaction, as nextval does, so the topic's deletion waits.
    PERFORM pg_sequence_last_value(sequence::regclass);
    WITH picked AS MATERIALIZED (
        SELECT f.ctid AS tid FROM holdfast.freed_groups f WHERE f.topic_id = of_id
        ORDER BY f.id LIMIT most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM holdfast.freed_groups f USING picked p WHERE f.ctid = p.tid RETURNING f.tenant, f.grp
    )
    SELECT count(*), array_agg(g.tenant), array_agg(g.grp) INTO freed, tenants, grps FROM gone g;
    IF freed > 0 THEN
        -- A group that is gone has ended, or has begun again with a job that runs.
        SELECT array_agg(l.tenant), array_agg(l.grp) INTO tenants, grps
        FROM (
            SELECT x.tenant, x.grp
            FROM (
                SELECT DISTINCT u.tenant COLLATE "C" AS tenant, u.grp COLLATE "C" AS grp
                FROM unnest(tenants, grps) AS u(tenant, grp) ORDER BY 1, 2
            ) o
            CROSS JOIN LATERAL (
                SELECT g.tenant, g.grp FROM holdfast.groups g
                WHERE g.topic_id = of_id AND g.tenant = o.tenant AND g.grp = o.grp FOR UPDATE
            ) x
        ) l;
        SELECT n.ready, n.scheduled INTO ready, scheduled
        FROM holdfast.let_next(of_topic, of_id, sequence, tenants, grps) n;
    END IF;
END $$;

--
-- Name: put_pending(holdfast.jobs); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.put_pending(job holdfast.jobs) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN job.cluster := NULL; job.failed_in := NULL; job.failed_at := NULL;
    INSERT INTO holdfast.jobs VALUES (job.*)
    ON CONFLICT (topic, tenant, key)
        WHERE key IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'blocked')
    DO NOTHING;
    RETURN FOUND;
END $$;

--
-- Name: recent_events(integer, double precision); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.recent_events(of_topic_id integer, seconds double precision, OUT claimed bigint, OUT acked bigint, OUT enqueued bigint, OUT first_claim timestamp with time zone, OUT last_claim timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE
    SET enable_bitmapscan TO 'on'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
DECLARE
    first_at CONSTANT timestamptz := greatest(
        now() - seconds * interval '1 second', holdfast.events_from(of_topic_id),
        (SELECT t.created_at FROM holdfast.topics t WHERE t.id = of_topic_id));
BEGIN
    SELECT count(*) FILTER (WHERE e.event = 'claimed'), count(*) FILTER (WHERE e.event = 'acked'),
           count(*) FILTER (WHERE e.event = 'enqueued'), min(e.at) FILTER (WHERE e.event = 'claimed'),
           max(e.at) FILTER (WHERE e.event = 'claimed')
    INTO claimed, acked, enqueued, first_claim, last_claim
    FROM holdfast.lease_events e
    WHERE e.topic_id = of_topic_id AND e.at > first_at;
END $$;

--
-- Name: refuse_change(); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RAISE EXCEPTION '%.% is append-only', TG_TABLE_SCHEMA, TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;

--
-- Name: refuse_drained(); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.refuse_drained() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
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

--
-- Name: requeue(text, integer, bigint[], text, text[], bigint); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.requeue(of_topic text, of_id integer, given bigint[], only_from text, starts text[], default_ttl_ms bigint) RETURNS TABLE(given_seq bigint, outcome text, to_topic text, to_id integer, to_seq bigint, id_topic integer, id_seq bigint, was text)
    LANGUAGE plpgsql
    AS $_$
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
END $_$;

--
-- Name: state_now(holdfast.job_state, timestamp with time zone, timestamp with time zone, timestamp with time zone); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.state_now(state holdfast.job_state, visible_at timestamp with time zone, expires_at timestamp with time zone, cancelled_at timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN state::text IN ('failed', 'expired') THEN state::text
                WHEN state::text = 'leased' AND visible_at >= now() THEN 'leased'
                WHEN cancelled_at IS NOT NULL THEN 'cancelled'
                WHEN expires_at <= now() THEN 'expired'
                WHEN state::text = 'blocked' THEN 'blocked'
                WHEN visible_at > now() THEN 'scheduled'
                ELSE 'ready' END
$$;

--
-- Name: take_inbox(); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.take_inbox() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $_$
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
END $_$;

--
-- Name: tell(); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.tell() RETURNS trigger
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

--
-- Name: trim_front(holdfast.log_state, bigint, bigint, timestamp with time zone, bigint); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.trim_front(s holdfast.log_state, spare_records bigint, spare_bytes bigint, before timestamp with time zone, most bigint) RETURNS holdfast.log_state
    LANGUAGE plpgsql
    AS $$
DECLARE
    oldest record;
    gone bigint := 0;
    gone_bytes bigint := 0;
    through bigint;
BEGIN
    FOR oldest IN
        SELECT r.seq, r.created_at, octet_length(r.payload) + coalesce(octet_length(r.metadata::text), 0) AS size
        FROM holdfast.records r
        WHERE r.topic = s.topic AND r.seq >= s.earliest_seq AND r.seq <= s.head_seq ORDER BY r.seq
    LOOP
        EXIT WHEN gone >= most;
        IF oldest.created_at < before THEN
            s.ttl_lost_to := oldest.seq;
        ELSIF gone < spare_records OR gone_bytes < spare_bytes THEN
            s.cap_lost_to := oldest.seq;
        ELSE
            EXIT;
        END IF;
        gone := gone + 1;
        gone_bytes := gone_bytes + oldest.size;
        through := oldest.seq;
    END LOOP;
    IF gone > 0 THEN
        DELETE FROM holdfast.records r
        WHERE r.topic = s.topic AND r.seq >= s.earliest_seq AND r.seq <= through;
        s.count := s.count - gone;
        s.bytes := s.bytes - gone_bytes;
        s.earliest_seq := coalesce((
            SELECT r.seq FROM holdfast.records r
            WHERE r.topic = s.topic AND r.seq > through AND r.seq <= s.head_seq ORDER BY r.seq LIMIT 1
        ), s.head_seq + 1);
    END IF;
    RETURN s;
END $$;

--
-- Name: trim_log(text, integer, bigint, bigint, boolean, bigint, bigint); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.trim_log(of_topic text, of_id integer, cap_records bigint, cap_bytes bigint, rejects boolean, ttl_ms bigint, most bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    s holdfast.log_state := holdfast.lock_log(of_topic, of_id);
    trimmed holdfast.log_state;
BEGIN
    trimmed := holdfast.trim_front(
        s,
        CASE WHEN cap_records > 0 AND NOT rejects THEN s.count - cap_records ELSE 0 END,
        CASE WHEN cap_bytes > 0 AND NOT rejects THEN s.bytes - cap_bytes ELSE 0 END,
        CASE WHEN ttl_ms > 0 THEN clock_timestamp() - ttl_ms * interval '1 ms' ELSE '-infinity' END, most);
    IF trimmed.count < s.count THEN
        PERFORM holdfast.write_log_state(trimmed);
    END IF;
    RETURN s.count - trimmed.count;
END $$;

--
-- Name: write_log_state(holdfast.log_state); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.write_log_state(s holdfast.log_state) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO holdfast.log_state (topic, topic_id, version, head_seq, earliest_seq, count, bytes, cap_lost_to,
                                    ttl_lost_to, written_at)
    VALUES (s.topic, s.topic_id, s.version + 1, s.head_seq, s.earliest_seq, s.count, s.bytes, s.cap_lost_to,
            s.ttl_lost_to, s.written_at);
    DELETE FROM holdfast.log_state l
    WHERE l.topic = s.topic AND l.topic_id = s.topic_id AND l.version = s.version;
END $$;

--
-- Name: alembic_version; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.alembic_version (
    version_num character varying(32) NOT NULL
);

--
-- Name: api_keys; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.api_keys (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    digest bytea NOT NULL,
    old_digest bytea,
    old_until timestamp with time zone,
    scopes text[] NOT NULL,
    prefixes text[] DEFAULT '{}'::text[] NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    created_by text NOT NULL,
    rotated_at timestamp with time zone,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    tenant text,
    hides_payloads boolean DEFAULT false NOT NULL,
    CONSTRAINT api_keys_check CHECK (((old_digest IS NULL) = (old_until IS NULL))),
    CONSTRAINT api_keys_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT api_keys_id_check CHECK ((id ~ '^key_[0-9a-f]{16}$'::text)),
    CONSTRAINT api_keys_name_check CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 128))),
    CONSTRAINT api_keys_old_digest_check CHECK ((octet_length(old_digest) = 32)),
    CONSTRAINT api_keys_scopes_check CHECK (((cardinality(scopes) > 0) AND (scopes <@ ARRAY['read'::text, 'write'::text, 'delete'::text, 'admin'::text])))
);

--
-- Name: archive; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.archive (
    finished_at timestamp with time zone NOT NULL,
    seq bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    original_seq bigint,
    first_seq bigint,
    topic_id integer NOT NULL,
    first_topic_id integer,
    deliveries integer NOT NULL,
    max_deliveries integer,
    outcome holdfast.outcome NOT NULL,
    priority smallint NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    key text COLLATE pg_catalog."C",
    node text,
    tag text,
    producer text,
    content_type text,
    last_error text,
    original_topic text COLLATE pg_catalog."C",
    metadata json,
    payload bytea NOT NULL,
    grp text COLLATE pg_catalog."C"
)
PARTITION BY RANGE (finished_at);
ALTER TABLE ONLY holdfast.archive ALTER COLUMN payload SET STORAGE EXTERNAL;

--
-- Name: archived_days; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.archived_days (
    of_table text NOT NULL COLLATE pg_catalog."C",
    day date NOT NULL,
    rows bigint NOT NULL,
    checksum numeric NOT NULL,
    location text NOT NULL,
    verified_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT archived_days_of_table_check CHECK ((of_table = ANY (ARRAY['lease_events'::text, 'results'::text, 'archive'::text]))),
    CONSTRAINT archived_days_rows_check CHECK ((rows >= 0))
);

--
-- Name: audit; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    actor text NOT NULL,
    actor_name text,
    address text,
    action text NOT NULL,
    subject text NOT NULL COLLATE pg_catalog."C",
    detail json DEFAULT '{}'::json NOT NULL
);

--
-- Name: audit_id_seq; Type: SEQUENCE; Schema: holdfast; Owner: -
--

ALTER TABLE holdfast.audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: buckets; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE UNLOGGED TABLE holdfast.buckets (
    at timestamp with time zone NOT NULL,
    tokens double precision NOT NULL,
    topic_id integer NOT NULL,
    granted integer NOT NULL,
    CONSTRAINT buckets_tokens_check CHECK ((tokens >= (0)::double precision))
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

--
-- Name: results; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.results (
    completed_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    seq bigint NOT NULL,
    first_seq bigint,
    topic_id integer NOT NULL,
    first_topic_id integer,
    deliveries integer NOT NULL,
    lease_id uuid NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    node text,
    result json NOT NULL
)
PARTITION BY RANGE (completed_at);
ALTER TABLE ONLY holdfast.results ALTER COLUMN result SET STORAGE EXTERNAL;

--
-- Name: day_partitions; Type: VIEW; Schema: holdfast; Owner: -
--

CREATE VIEW holdfast.day_partitions AS
 SELECT d.of_table,
    d.day,
    d.partition,
    (a.verified_at IS NOT NULL) AS archived,
    (d.day < ((statement_timestamp() AT TIME ZONE 'UTC'::text))::date) AS over
   FROM (( SELECT (p.relname)::text AS of_table,
            (c.relname)::text AS partition,
            to_date("right"((c.relname)::text, 8), 'YYYYMMDD'::text) AS day
           FROM ((pg_inherits i
             JOIN pg_class c ON ((c.oid = i.inhrelid)))
             JOIN pg_class p ON ((p.oid = i.inhparent)))
          WHERE (i.inhparent = ANY (ARRAY[('holdfast.lease_events'::regclass)::oid, ('holdfast.results'::regclass)::oid, ('holdfast.archive'::regclass)::oid]))) d
     LEFT JOIN holdfast.archived_days a ON (((a.of_table = d.of_table) AND (a.day = d.day))));

--
-- Name: job_states; Type: VIEW; Schema: holdfast; Owner: -
--

CREATE VIEW holdfast.job_states AS
 SELECT topic,
    seq,
    holdfast.state_now(state, visible_at, expires_at, cancelled_at) AS state,
    tenant,
    key,
    COALESCE(grp, left_grp) AS grp,
    priority,
    tag,
    created_at,
    updated_at,
    visible_at,
    expires_at,
    deliveries,
    crashes,
    max_deliveries,
    node,
    leased_at,
    progress,
    last_error,
    original_topic,
    original_seq,
    original_deliveries,
    dlq_moved_at,
    content_type,
    metadata,
    payload
   FROM holdfast.jobs j;

--
-- Name: dead_letters; Type: VIEW; Schema: holdfast; Owner: -
--

CREATE VIEW holdfast.dead_letters AS
 SELECT topic,
    seq,
    state,
    tenant,
    key,
    grp,
    priority,
    tag,
    created_at,
    updated_at,
    visible_at,
    expires_at,
    deliveries,
    crashes,
    max_deliveries,
    node,
    leased_at,
    progress,
    last_error,
    original_topic,
    original_seq,
    original_deliveries,
    dlq_moved_at,
    content_type,
    metadata,
    payload
   FROM holdfast.job_states s
  WHERE (dlq_moved_at IS NOT NULL);

--
-- Name: dedupe; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.dedupe (
    topic_id integer NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    grp text NOT NULL COLLATE pg_catalog."C",
    dedupe_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT dedupe_dedupe_id_check CHECK (((char_length(dedupe_id) >= 1) AND (char_length(dedupe_id) <= 256)))
)
WITH (fillfactor='50');

--
-- Name: defaults; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.defaults (
    ttl_ms bigint DEFAULT 86400000 NOT NULL,
    max_retries integer DEFAULT 3 NOT NULL,
    dlq_threshold integer DEFAULT 3 NOT NULL,
    one_row boolean DEFAULT true NOT NULL,
    CONSTRAINT defaults_one_row_check CHECK (one_row)
);

--
-- Name: depth_looks; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.depth_looks (
    minute timestamp with time zone NOT NULL
);

--
-- Name: depths; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.depths (
    topic_id integer NOT NULL,
    minute timestamp with time zone NOT NULL,
    ready bigint NOT NULL,
    in_flight bigint NOT NULL,
    scheduled bigint NOT NULL,
    blocked bigint NOT NULL,
    CONSTRAINT depths_blocked_check CHECK ((blocked >= 0)),
    CONSTRAINT depths_in_flight_check CHECK ((in_flight >= 0)),
    CONSTRAINT depths_ready_check CHECK ((ready >= 0)),
    CONSTRAINT depths_scheduled_check CHECK ((scheduled >= 0))
);

--
-- Name: endings; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.endings (
    topic text NOT NULL COLLATE pg_catalog."C",
    topic_id integer NOT NULL,
    seq bigint NOT NULL,
    event text NOT NULL,
    deliveries integer NOT NULL,
    error text,
    about json NOT NULL
);

--
-- Name: freed_groups; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.freed_groups (
    id bigint NOT NULL,
    topic_id integer NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    grp text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_threshold='-1', autovacuum_vacuum_cost_delay='0');

--
-- Name: freed_groups_id_seq; Type: SEQUENCE; Schema: holdfast; Owner: -
--

ALTER TABLE holdfast.freed_groups ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.freed_groups_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: grants; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.grants (
    id uuid NOT NULL,
    user_id uuid NOT NULL,
    action text NOT NULL,
    topic_pattern text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    created_by text NOT NULL,
    hides_payloads boolean DEFAULT false NOT NULL,
    CONSTRAINT grants_action_check CHECK ((action = ANY (ARRAY['read'::text, 'write'::text, 'consume'::text, 'admin'::text])))
);

--
-- Name: groups; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.groups (
    topic_id integer NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    grp text NOT NULL COLLATE pg_catalog."C",
    fresh boolean NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

--
-- Name: idempotency; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.idempotency (
    expires_at timestamp with time zone NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    topic_id integer NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    seqs bigint[],
    head_seq bigint
);

--
-- Name: inbox; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE UNLOGGED TABLE holdfast.inbox (
    topic text NOT NULL COLLATE pg_catalog."C",
    payload bytea,
    payload_text text,
    content_type text,
    metadata text,
    tag text,
    node text,
    priority integer,
    delay_ms bigint,
    run_at timestamp with time zone,
    ttl_ms bigint,
    max_deliveries integer,
    key text COLLATE pg_catalog."C",
    checked integer,
    place bigint NOT NULL,
    tenant text COLLATE pg_catalog."C",
    "group" text COLLATE pg_catalog."C",
    dedupe_id text COLLATE pg_catalog."C",
    user_id text,
    webhook text,
    CONSTRAINT "content_type: type/subtype, of up to 255 characters" CHECK (((content_type ~ '^[!#$&^_.+A-Za-z0-9-]+/[!#$&^_.+A-Za-z0-9-]+( *;[ -~]*)?$'::text) AND (length(content_type) < 256))),
    CONSTRAINT "dedupe_id: 1 to 256 characters" CHECK (((char_length(dedupe_id) >= 1) AND (char_length(dedupe_id) <= 256))),
    CONSTRAINT "delay_ms: 0 to 315360000000, ten years" CHECK (((delay_ms >= 0) AND (delay_ms <= '315360000000'::bigint))),
    CONSTRAINT "group: 1 to 128 characters" CHECK (((char_length("group") >= 1) AND (char_length("group") <= 128))),
    CONSTRAINT "key: 1 to 256 characters" CHECK (((char_length(key) >= 1) AND (char_length(key) <= 256))),
    CONSTRAINT "max_deliveries: 0 to 10000" CHECK (((max_deliveries >= 0) AND (max_deliveries <= 10000))),
    CONSTRAINT "metadata: 16 KiB at most" CHECK ((octet_length(metadata) <= 16384)),
    CONSTRAINT "node: 128 bytes at most" CHECK ((octet_length(node) <= 128)),
    CONSTRAINT "payload and metadata: 1 MiB at most" CHECK (((COALESCE(octet_length(payload), octet_length(payload_text)) + COALESCE(octet_length(metadata), 0)) <= 1048576)),
    CONSTRAINT "payload or payload_text: one of them" CHECK ((num_nonnulls(payload, payload_text) = 1)),
    CONSTRAINT "priority: 0 to 9" CHECK (((priority >= 0) AND (priority <= 9))),
    CONSTRAINT "run_at: a time of these millennia" CHECK (((run_at < '10000-01-01 00:00:00+00'::timestamp with time zone) AND (run_at > '-infinity'::timestamp with time zone))),
    CONSTRAINT "tag: 256 bytes at most" CHECK ((octet_length(tag) <= 256)),
    CONSTRAINT "tenant: 128 characters at most" CHECK ((char_length(tenant) <= 128)),
    CONSTRAINT "topic: holdfast. is kept for the service's own" CHECK ((topic !~~ 'holdfast.%'::text)),
    CONSTRAINT "topic: names that end in .dlq are kept for dead letters" CHECK ((topic !~~ '%.dlq'::text)),
    CONSTRAINT "topic: names that end in .fifo ask for a group" CHECK (((topic !~~ '%.fifo'::text) OR ("group" IS NOT NULL))),
    CONSTRAINT "ttl_ms: 0 to 315360000000, ten years" CHECK (((ttl_ms >= 0) AND (ttl_ms <= '315360000000'::bigint))),
    CONSTRAINT "user_id: 1 to 128 characters" CHECK (((char_length(user_id) >= 1) AND (char_length(user_id) <= 128))),
    CONSTRAINT "webhook: an http:// or https:// URL of up to 2048 characters" CHECK (((webhook ~* '^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&*+,;=%-]+)(:[1-9][0-9]{0,4})?([/?][!-"$-~]*)?$'::text) AND (octet_length(webhook) <= 2048)))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

--
-- Name: inbox_place_seq; Type: SEQUENCE; Schema: holdfast; Owner: -
--

ALTER TABLE holdfast.inbox ALTER COLUMN place ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.inbox_place_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: inbox_rejects; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.inbox_rejects (
    rejected_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    inserted_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone,
    delay_ms bigint,
    ttl_ms bigint,
    priority integer,
    max_deliveries integer,
    topic text NOT NULL COLLATE pg_catalog."C",
    content_type text,
    metadata text,
    tag text,
    node text,
    key text COLLATE pg_catalog."C",
    payload bytea NOT NULL,
    reason text NOT NULL,
    tenant text COLLATE pg_catalog."C",
    "group" text COLLATE pg_catalog."C",
    dedupe_id text COLLATE pg_catalog."C",
    user_id text,
    webhook text
);

--
-- Name: inbox_unchecked; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.inbox_unchecked (
    id bigint NOT NULL,
    run_at timestamp with time zone,
    delay_ms bigint,
    ttl_ms bigint,
    inserted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    priority integer,
    max_deliveries integer,
    topic text NOT NULL COLLATE pg_catalog."C",
    content_type text,
    metadata text,
    tag text,
    node text,
    key text COLLATE pg_catalog."C",
    payload bytea NOT NULL,
    tenant text COLLATE pg_catalog."C",
    "group" text COLLATE pg_catalog."C",
    dedupe_id text COLLATE pg_catalog."C",
    user_id text,
    webhook text
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

--
-- Name: inbox_unchecked_id_seq; Type: SEQUENCE; Schema: holdfast; Owner: -
--

ALTER TABLE holdfast.inbox_unchecked ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.inbox_unchecked_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: lanes; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.lanes (
    topic text NOT NULL COLLATE pg_catalog."C",
    tenant text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    priority smallint DEFAULT 0 NOT NULL
);

--
-- Name: topics; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.topics (
    name text NOT NULL COLLATE pg_catalog."C",
    id integer NOT NULL,
    type holdfast.topic_type NOT NULL,
    durability holdfast.durability DEFAULT 'disk'::holdfast.durability NOT NULL,
    lease_ms integer DEFAULT 30000,
    claim_jitter_ms integer DEFAULT 0 NOT NULL,
    max_deliveries integer DEFAULT 0,
    on_exhausted holdfast.exhaustion DEFAULT 'redeliver'::holdfast.exhaustion NOT NULL,
    dead_letter text COLLATE pg_catalog."C",
    ttl_ms bigint DEFAULT 0,
    cap_records bigint DEFAULT 0 NOT NULL,
    cap_bytes bigint DEFAULT 0 NOT NULL,
    discard holdfast.discard DEFAULT 'old'::holdfast.discard NOT NULL,
    idempotency_window_ms bigint DEFAULT 120000 NOT NULL,
    priority integer,
    auto_priority boolean DEFAULT true NOT NULL,
    auto_create boolean DEFAULT true NOT NULL,
    dedupe_node boolean DEFAULT true NOT NULL,
    leases_durable boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    max_retries integer,
    dlq_threshold integer,
    max_depth bigint DEFAULT 0 NOT NULL,
    throughput_limit integer DEFAULT 0 NOT NULL,
    replayable boolean DEFAULT false NOT NULL,
    replay_window_ms bigint DEFAULT 604800000 NOT NULL,
    configured boolean DEFAULT true NOT NULL,
    schema_version integer,
    priority_order text DEFAULT 'highest_first'::text NOT NULL COLLATE pg_catalog."C",
    retry_order text DEFAULT 'front'::text NOT NULL COLLATE pg_catalog."C",
    aging_ms bigint DEFAULT 0 NOT NULL,
    tenant_weights jsonb DEFAULT '{}'::jsonb NOT NULL,
    tenant_limits jsonb DEFAULT '{}'::jsonb NOT NULL,
    dedupe_window_ms bigint DEFAULT 300000 NOT NULL,
    backoff json,
    dead_ttl_ms bigint DEFAULT 1209600000 NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    paused_tenants text[] DEFAULT '{}'::text[] NOT NULL,
    draining boolean DEFAULT false NOT NULL,
    result_ttl_ms bigint DEFAULT 86400000 NOT NULL,
    webhook json,
    accepts text[] DEFAULT '{application/json,application/x-www-form-urlencoded,multipart/form-data,text/plain}'::text[] NOT NULL,
    ingest text DEFAULT 'key'::text NOT NULL,
    user_events boolean DEFAULT false NOT NULL,
    drained_at timestamp with time zone,
    event_ttl_ms bigint DEFAULT 604800000 NOT NULL,
    wait_goal_ms bigint DEFAULT 60000 NOT NULL,
    CONSTRAINT topics_accepts_check CHECK (((cardinality(accepts) >= 1) AND (cardinality(accepts) <= 32))),
    CONSTRAINT topics_aging_ms_check CHECK (((aging_ms >= 0) AND (aging_ms <= '315360000000'::bigint))),
    CONSTRAINT topics_cap_bytes_check CHECK ((cap_bytes >= 0)),
    CONSTRAINT topics_cap_records_check CHECK ((cap_records >= 0)),
    CONSTRAINT topics_check CHECK ((dead_letter <> name)),
    CONSTRAINT topics_claim_jitter_ms_check CHECK (((claim_jitter_ms >= 0) AND (claim_jitter_ms <= 5000))),
    CONSTRAINT topics_dead_ttl_ms_check CHECK (((dead_ttl_ms >= 0) AND (dead_ttl_ms <= '315360000000'::bigint))),
    CONSTRAINT topics_dedupe_window_ms_check CHECK (((dedupe_window_ms >= 0) AND (dedupe_window_ms <= 604800000))),
    CONSTRAINT topics_dlq_threshold_check CHECK (((dlq_threshold >= 0) AND (dlq_threshold <= 10000))),
    CONSTRAINT topics_event_ttl_ms_check CHECK (((event_ttl_ms >= 0) AND (event_ttl_ms <= '315360000000'::bigint))),
    CONSTRAINT topics_idempotency_window_ms_check CHECK (((idempotency_window_ms >= 0) AND (idempotency_window_ms <= 604800000))),
    CONSTRAINT topics_ingest_check CHECK ((ingest = ANY (ARRAY['key'::text, 'public'::text]))),
    CONSTRAINT topics_lease_ms_check CHECK (((lease_ms >= 100) AND (lease_ms <= 86400000))),
    CONSTRAINT topics_max_deliveries_check CHECK (((max_deliveries >= 0) AND (max_deliveries <= 10000))),
    CONSTRAINT topics_max_depth_check CHECK ((max_depth >= 0)),
    CONSTRAINT topics_max_retries_check CHECK (((max_retries >= 0) AND (max_retries <= 10000))),
    CONSTRAINT topics_name_check CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$'::text)),
    CONSTRAINT topics_priority_order_check CHECK ((priority_order = ANY (ARRAY['highest_first'::text, 'lowest_first'::text]))),
    CONSTRAINT topics_replay_window_ms_check CHECK (((replay_window_ms >= 0) AND (replay_window_ms <= '315360000000'::bigint))),
    CONSTRAINT topics_result_ttl_ms_check CHECK (((result_ttl_ms >= 0) AND (result_ttl_ms <= '315360000000'::bigint))),
    CONSTRAINT topics_retry_order_check CHECK ((retry_order = ANY (ARRAY['front'::text, 'back'::text]))),
    CONSTRAINT topics_schema_version_check CHECK ((schema_version > 0)),
    CONSTRAINT topics_throughput_limit_check CHECK ((throughput_limit >= 0)),
    CONSTRAINT topics_ttl_ms_check CHECK (((ttl_ms >= 0) AND (ttl_ms <= '315360000000'::bigint))),
    CONSTRAINT topics_wait_goal_ms_check CHECK (((wait_goal_ms >= 0) AND (wait_goal_ms <= '315360000000'::bigint)))
);

--
-- Name: messages; Type: VIEW; Schema: holdfast; Owner: -
--

CREATE VIEW holdfast.messages AS
 SELECT holdfast.message_id(COALESCE(j.first_topic_id, j.topic_id), COALESCE(j.first_seq, j.seq)) AS id,
    j.topic,
    j.payload,
    (j.metadata)::jsonb AS metadata,
    j.key,
    s.status,
    (j.deliveries - ((s.status = 'processing'::text))::integer) AS retry_count,
    COALESCE(j.max_deliveries, t.max_retries, t.max_deliveries, d.max_retries) AS max_retries,
    j.last_error,
        CASE
            WHEN (s.status = 'processing'::text) THEN j.visible_at
            ELSE NULL::timestamp with time zone
        END AS visibility_timeout,
    j.expires_at,
    j.original_topic,
    j.dlq_moved_at,
    j.created_at,
    j.updated_at
   FROM (((holdfast.jobs j
     JOIN holdfast.topics t ON ((t.name = j.topic)))
     CROSS JOIN holdfast.defaults d)
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN ((j.state)::text = ANY (ARRAY['failed'::text, 'expired'::text])) THEN (j.state)::text
                    WHEN (((j.state)::text = 'leased'::text) AND (j.visible_at >= statement_timestamp())) THEN 'processing'::text
                    WHEN (j.expires_at <= statement_timestamp()) THEN 'expired'::text
                    ELSE 'pending'::text
                END AS status) s);

--
-- Name: new_lanes; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.new_lanes (
    tx xid8 DEFAULT pg_current_xact_id() NOT NULL,
    priority smallint NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

--
-- Name: operations; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.operations (
    started_at timestamp with time zone NOT NULL,
    until_time timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    after_time timestamp with time zone DEFAULT '1970-01-01 00:00:00+00'::timestamp with time zone NOT NULL,
    canary_until timestamp with time zone,
    ended_at timestamp with time zone,
    after_seq bigint DEFAULT 0 NOT NULL,
    matched bigint NOT NULL,
    requeued bigint DEFAULT 0 NOT NULL,
    skipped bigint DEFAULT 0 NOT NULL,
    topic_id integer NOT NULL,
    dead_id integer,
    rate integer NOT NULL,
    failed_again integer DEFAULT 0 NOT NULL,
    stage smallint DEFAULT 0 NOT NULL,
    matched_exact boolean NOT NULL,
    cancelled boolean DEFAULT false NOT NULL,
    id uuid NOT NULL,
    owner uuid NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    dead_topic text COLLATE pg_catalog."C",
    state text NOT NULL,
    reason text,
    seqs bigint[],
    starts text[] NOT NULL COLLATE pg_catalog."C",
    filter json,
    canary json,
    canary_jobs json DEFAULT '[]'::json NOT NULL,
    actor text NOT NULL,
    actor_name text,
    address text,
    cancels json,
    gone bigint DEFAULT 0 NOT NULL,
    marked bigint DEFAULT 0 NOT NULL,
    CONSTRAINT operations_check CHECK (((dead_topic IS NULL) = (dead_id IS NULL))),
    CONSTRAINT operations_check1 CHECK (((ended_at IS NULL) = (state = ANY (ARRAY['canary'::text, 'running'::text])))),
    CONSTRAINT operations_gone_check CHECK ((gone >= 0)),
    CONSTRAINT operations_kind CHECK (((filter IS NULL) <> (cancels IS NULL))),
    CONSTRAINT operations_marked_check CHECK ((marked >= 0)),
    CONSTRAINT operations_rate_check CHECK ((rate >= 0)),
    CONSTRAINT operations_requeued_check CHECK ((requeued >= 0)),
    CONSTRAINT operations_skipped_check CHECK ((skipped >= 0))
)
WITH (fillfactor='50');

--
-- Name: records; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.records (
    seq bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    topic_id integer NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    tag text COLLATE pg_catalog."C",
    node text,
    metadata json,
    payload bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY holdfast.records ALTER COLUMN payload SET STORAGE EXTERNAL;

--
-- Name: replays; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.replays (
    asked_from timestamp with time zone NOT NULL,
    from_time timestamp with time zone NOT NULL,
    until_time timestamp with time zone NOT NULL,
    after_time timestamp with time zone NOT NULL,
    after_seq bigint NOT NULL,
    enqueued bigint DEFAULT 0 NOT NULL,
    skipped bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    topic_id integer NOT NULL,
    done boolean DEFAULT false NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT replays_enqueued_check CHECK ((enqueued >= 0)),
    CONSTRAINT replays_skipped_check CHECK ((skipped >= 0))
)
WITH (fillfactor='50');

--
-- Name: saved_views; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.saved_views (
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    owner text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    address text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT saved_views_address_check CHECK (((octet_length(address) >= 1) AND (octet_length(address) <= 4096))),
    CONSTRAINT saved_views_name_check CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 512)))
);

--
-- Name: schedules; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.schedules (
    name text NOT NULL COLLATE pg_catalog."C",
    topic text NOT NULL COLLATE pg_catalog."C",
    cron text NOT NULL,
    time_zone text NOT NULL,
    missed text NOT NULL,
    paused boolean NOT NULL,
    next_fire timestamp with time zone,
    due_at timestamp with time zone,
    last_fire timestamp with time zone,
    last_seq bigint,
    fires bigint DEFAULT 0 NOT NULL,
    error_code text,
    error_text text,
    error_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    payload bytea NOT NULL,
    fields json NOT NULL,
    CONSTRAINT schedules_check CHECK ((((next_fire IS NULL) = (due_at IS NULL)) AND ((next_fire IS NULL) OR (NOT paused)))),
    CONSTRAINT schedules_check1 CHECK ((((error_code IS NULL) = (error_text IS NULL)) AND ((error_code IS NULL) = (error_at IS NULL)))),
    CONSTRAINT schedules_missed_check CHECK ((missed = ANY (ARRAY['skip'::text, 'once'::text, 'all'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

--
-- Name: sign_in_tries; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.sign_in_tries (
    until timestamp with time zone NOT NULL,
    tries integer NOT NULL,
    who bytea NOT NULL,
    CONSTRAINT sign_in_tries_tries_check CHECK ((tries >= 0)),
    CONSTRAINT sign_in_tries_who_check CHECK ((octet_length(who) = 32))
);

--
-- Name: sqs_queues; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.sqs_queues (
    topic_id integer NOT NULL,
    attributes jsonb DEFAULT '{}'::jsonb NOT NULL,
    tags jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    purged_at timestamp with time zone
);

--
-- Name: staged; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE UNLOGGED TABLE holdfast.staged (
    topic text CONSTRAINT inbox_topic_not_null NOT NULL COLLATE pg_catalog."C",
    payload bytea,
    payload_text text,
    content_type text,
    metadata text,
    tag text,
    node text,
    priority integer,
    delay_ms bigint,
    run_at timestamp with time zone,
    ttl_ms bigint,
    max_deliveries integer,
    key text COLLATE pg_catalog."C",
    checked integer,
    place bigint CONSTRAINT inbox_place_not_null NOT NULL,
    tenant text COLLATE pg_catalog."C",
    "group" text COLLATE pg_catalog."C",
    dedupe_id text COLLATE pg_catalog."C",
    user_id text,
    webhook text,
    attempt bigint NOT NULL,
    CONSTRAINT "content_type: type/subtype, of up to 255 characters" CHECK (((content_type ~ '^[!#$&^_.+A-Za-z0-9-]+/[!#$&^_.+A-Za-z0-9-]+( *;[ -~]*)?$'::text) AND (length(content_type) < 256))),
    CONSTRAINT "dedupe_id: 1 to 256 characters" CHECK (((char_length(dedupe_id) >= 1) AND (char_length(dedupe_id) <= 256))),
    CONSTRAINT "delay_ms: 0 to 315360000000, ten years" CHECK (((delay_ms >= 0) AND (delay_ms <= '315360000000'::bigint))),
    CONSTRAINT "group: 1 to 128 characters" CHECK (((char_length("group") >= 1) AND (char_length("group") <= 128))),
    CONSTRAINT "key: 1 to 256 characters" CHECK (((char_length(key) >= 1) AND (char_length(key) <= 256))),
    CONSTRAINT "max_deliveries: 0 to 10000" CHECK (((max_deliveries >= 0) AND (max_deliveries <= 10000))),
    CONSTRAINT "metadata: 16 KiB at most" CHECK ((octet_length(metadata) <= 16384)),
    CONSTRAINT "node: 128 bytes at most" CHECK ((octet_length(node) <= 128)),
    CONSTRAINT "payload and metadata: 1 MiB at most" CHECK (((COALESCE(octet_length(payload), octet_length(payload_text)) + COALESCE(octet_length(metadata), 0)) <= 1048576)),
    CONSTRAINT "payload or payload_text: one of them" CHECK ((num_nonnulls(payload, payload_text) = 1)),
    CONSTRAINT "priority: 0 to 9" CHECK (((priority >= 0) AND (priority <= 9))),
    CONSTRAINT "run_at: a time of these millennia" CHECK (((run_at < '10000-01-01 00:00:00+00'::timestamp with time zone) AND (run_at > '-infinity'::timestamp with time zone))),
    CONSTRAINT "tag: 256 bytes at most" CHECK ((octet_length(tag) <= 256)),
    CONSTRAINT "tenant: 128 characters at most" CHECK ((char_length(tenant) <= 128)),
    CONSTRAINT "topic: holdfast. is kept for the service's own" CHECK ((topic !~~ 'holdfast.%'::text)),
    CONSTRAINT "topic: names that end in .dlq are kept for dead letters" CHECK ((topic !~~ '%.dlq'::text)),
    CONSTRAINT "topic: names that end in .fifo ask for a group" CHECK (((topic !~~ '%.fifo'::text) OR ("group" IS NOT NULL))),
    CONSTRAINT "ttl_ms: 0 to 315360000000, ten years" CHECK (((ttl_ms >= 0) AND (ttl_ms <= '315360000000'::bigint))),
    CONSTRAINT "user_id: 1 to 128 characters" CHECK (((char_length(user_id) >= 1) AND (char_length(user_id) <= 128))),
    CONSTRAINT "webhook: an http:// or https:// URL of up to 2048 characters" CHECK (((webhook ~* '^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&*+,;=%-]+)(:[1-9][0-9]{0,4})?([/?][!-"$-~]*)?$'::text) AND (octet_length(webhook) <= 2048)))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

--
-- Name: stages; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.stages (
    attempt bigint NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    run text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT "run: 1 to 256 characters" CHECK (((char_length(run) >= 1) AND (char_length(run) <= 256)))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

--
-- Name: stages_attempt_seq; Type: SEQUENCE; Schema: holdfast; Owner: -
--

ALTER TABLE holdfast.stages ALTER COLUMN attempt ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.stages_attempt_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: sweep_runs; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.sweep_runs (
    name text NOT NULL,
    run uuid NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    moved bigint NOT NULL,
    error text
);

--
-- Name: sweeps; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.sweeps (
    name text NOT NULL COLLATE pg_catalog."C",
    run uuid,
    started_at timestamp with time zone,
    heartbeat_at timestamp with time zone,
    finished_at timestamp with time zone,
    moved bigint DEFAULT 0 NOT NULL,
    error text,
    schedule text,
    due_after timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT sweeps_check CHECK ((((run IS NULL) = (started_at IS NULL)) AND ((run IS NULL) = (heartbeat_at IS NULL))))
)
WITH (fillfactor='25', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

--
-- Name: tallies; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.tallies (
    id bigint NOT NULL,
    ready bigint DEFAULT 0 NOT NULL,
    scheduled bigint DEFAULT 0 NOT NULL,
    blocked bigint DEFAULT 0 NOT NULL,
    leased bigint DEFAULT 0 NOT NULL,
    dead_lettered bigint DEFAULT 0 NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    topic_id integer NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    expired bigint DEFAULT 0 NOT NULL,
    ttl_lost_to bigint,
    cap_lost_to bigint
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_threshold='-1', autovacuum_vacuum_cost_delay='0');

--
-- Name: tallies_id_seq; Type: SEQUENCE; Schema: holdfast; Owner: -
--

ALTER TABLE holdfast.tallies ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.tallies_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: token_secret; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.token_secret (
    singleton boolean DEFAULT true NOT NULL,
    secret bytea NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT token_secret_secret_check CHECK ((octet_length(secret) >= 32)),
    CONSTRAINT token_secret_singleton_check CHECK (singleton)
);

--
-- Name: topic_reads; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.topic_reads (
    topic_id integer NOT NULL,
    read_at timestamp with time zone,
    written_at timestamp with time zone
)
WITH (fillfactor='50');

--
-- Name: topic_schemas; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.topic_schemas (
    topic_id integer NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    format text,
    schema text,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT topic_schemas_check CHECK (((schema IS NULL) = (format IS NULL))),
    CONSTRAINT topic_schemas_format_check CHECK ((format = ANY (ARRAY['json_schema'::text, 'avro'::text]))),
    CONSTRAINT topic_schemas_schema_check CHECK ((octet_length(schema) <= 262144)),
    CONSTRAINT topic_schemas_version_check CHECK ((version > 0))
);

--
-- Name: topic_stats; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.topic_stats (
    minute timestamp with time zone NOT NULL,
    topic_id integer NOT NULL,
    topic text NOT NULL COLLATE pg_catalog."C",
    tenant text NOT NULL COLLATE pg_catalog."C",
    enqueued bigint DEFAULT 0 NOT NULL,
    completed bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    retried bigint DEFAULT 0 NOT NULL,
    dead_lettered bigint DEFAULT 0 NOT NULL,
    expired bigint DEFAULT 0 NOT NULL,
    cancelled bigint DEFAULT 0 NOT NULL,
    wait_count bigint DEFAULT 0 NOT NULL,
    wait_p50_ms bigint,
    wait_p95_ms bigint,
    wait_p99_ms bigint,
    wait_buckets integer[] DEFAULT '{}'::integer[] NOT NULL,
    wait_counts bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    processing_count bigint DEFAULT 0 NOT NULL,
    processing_p50_ms bigint,
    processing_p95_ms bigint,
    processing_p99_ms bigint,
    processing_buckets integer[] DEFAULT '{}'::integer[] NOT NULL,
    processing_counts bigint[] DEFAULT '{}'::bigint[] NOT NULL
);

--
-- Name: topic_stats_progress; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.topic_stats_progress (
    one boolean DEFAULT true NOT NULL,
    filled_to timestamp with time zone NOT NULL,
    guessed_to timestamp with time zone NOT NULL,
    marked_at timestamp with time zone NOT NULL,
    mark xid8 NOT NULL,
    CONSTRAINT topic_stats_progress_one_check CHECK (one)
)
WITH (fillfactor='25');

--
-- Name: topic_stats_staged; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.topic_stats_staged (
    minute timestamp with time zone CONSTRAINT topic_stats_minute_not_null NOT NULL,
    topic_id integer CONSTRAINT topic_stats_topic_id_not_null NOT NULL,
    topic text CONSTRAINT topic_stats_topic_not_null NOT NULL COLLATE pg_catalog."C",
    tenant text CONSTRAINT topic_stats_tenant_not_null NOT NULL COLLATE pg_catalog."C",
    enqueued bigint DEFAULT 0 CONSTRAINT topic_stats_enqueued_not_null NOT NULL,
    completed bigint DEFAULT 0 CONSTRAINT topic_stats_completed_not_null NOT NULL,
    failed bigint DEFAULT 0 CONSTRAINT topic_stats_failed_not_null NOT NULL,
    retried bigint DEFAULT 0 CONSTRAINT topic_stats_retried_not_null NOT NULL,
    dead_lettered bigint DEFAULT 0 CONSTRAINT topic_stats_dead_lettered_not_null NOT NULL,
    expired bigint DEFAULT 0 CONSTRAINT topic_stats_expired_not_null NOT NULL,
    cancelled bigint DEFAULT 0 CONSTRAINT topic_stats_cancelled_not_null NOT NULL,
    wait_count bigint DEFAULT 0 CONSTRAINT topic_stats_wait_count_not_null NOT NULL,
    wait_p50_ms bigint,
    wait_p95_ms bigint,
    wait_p99_ms bigint,
    wait_buckets integer[] DEFAULT '{}'::integer[] CONSTRAINT topic_stats_wait_buckets_not_null NOT NULL,
    wait_counts bigint[] DEFAULT '{}'::bigint[] CONSTRAINT topic_stats_wait_counts_not_null NOT NULL,
    processing_count bigint DEFAULT 0 CONSTRAINT topic_stats_processing_count_not_null NOT NULL,
    processing_p50_ms bigint,
    processing_p95_ms bigint,
    processing_p99_ms bigint,
    processing_buckets integer[] DEFAULT '{}'::integer[] CONSTRAINT topic_stats_processing_buckets_not_null NOT NULL,
    processing_counts bigint[] DEFAULT '{}'::bigint[] CONSTRAINT topic_stats_processing_counts_not_null NOT NULL,
    run uuid NOT NULL,
    staged_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

--
-- Name: topics_id_seq; Type: SEQUENCE; Schema: holdfast; Owner: -
--

ALTER TABLE holdfast.topics ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.topics_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: user_events; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.user_events (
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    user_id text NOT NULL COLLATE pg_catalog."C",
    event text NOT NULL,
    data text NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

--
-- Name: user_events_id_seq; Type: SEQUENCE; Schema: holdfast; Owner: -
--

ALTER TABLE holdfast.user_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.user_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: users; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.users (
    id uuid NOT NULL,
    username text NOT NULL COLLATE pg_catalog."C",
    password_hash text,
    is_admin boolean NOT NULL,
    epoch integer DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    created_by text NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deleted_at timestamp with time zone,
    CONSTRAINT users_check CHECK (((password_hash IS NULL) = (deleted_at IS NOT NULL))),
    CONSTRAINT users_username_check CHECK (((octet_length(username) >= 1) AND (octet_length(username) <= 128)))
);

--
-- Name: watches; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.watches (
    expires_at timestamp with time zone NOT NULL,
    holder uuid,
    wid text NOT NULL COLLATE pg_catalog."C",
    owner text NOT NULL COLLATE pg_catalog."C",
    options json NOT NULL,
    places json NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

--
-- Name: webhook_secrets; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.webhook_secrets (
    topic_id integer NOT NULL,
    secret text NOT NULL
);

--
-- Name: writes; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.writes (
    batch bigint NOT NULL,
    jobs bigint NOT NULL,
    committed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    write_id text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT "write_id: 1 to 256 characters" CHECK (((char_length(write_id) >= 1) AND (char_length(write_id) <= 256)))
);

--
-- Name: alembic_version alembic_version_pkc; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);

--
-- Name: api_keys api_keys_digest_key; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.api_keys
    ADD CONSTRAINT api_keys_digest_key UNIQUE (digest);

--
-- Name: api_keys api_keys_old_digest_key; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.api_keys
    ADD CONSTRAINT api_keys_old_digest_key UNIQUE (old_digest);

--
-- Name: api_keys api_keys_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);

--
-- Name: archived_days archived_days_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.archived_days
    ADD CONSTRAINT archived_days_pkey PRIMARY KEY (of_table, day);

--
-- Name: audit audit_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);

--
-- Name: buckets buckets_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.buckets
    ADD CONSTRAINT buckets_pkey PRIMARY KEY (topic_id);

--
-- Name: dedupe dedupe_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.dedupe
    ADD CONSTRAINT dedupe_pkey PRIMARY KEY (topic_id, tenant, grp, dedupe_id);

--
-- Name: defaults defaults_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.defaults
    ADD CONSTRAINT defaults_pkey PRIMARY KEY (one_row);

--
-- Name: depth_looks depth_looks_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.depth_looks
    ADD CONSTRAINT depth_looks_pkey PRIMARY KEY (minute);

--
-- Name: depths depths_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.depths
    ADD CONSTRAINT depths_pkey PRIMARY KEY (topic_id, minute);

--
-- Name: freed_groups freed_groups_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.freed_groups
    ADD CONSTRAINT freed_groups_pkey PRIMARY KEY (topic_id, id);

--
-- Name: grants grants_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.grants
    ADD CONSTRAINT grants_pkey PRIMARY KEY (id);

--
-- Name: grants grants_user_id_action_topic_pattern_key; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.grants
    ADD CONSTRAINT grants_user_id_action_topic_pattern_key UNIQUE (user_id, action, topic_pattern);

--
-- Name: groups groups_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.groups
    ADD CONSTRAINT groups_pkey PRIMARY KEY (topic_id, tenant, grp);

--
-- Name: idempotency idempotency_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (topic, key);

--
-- Name: inbox_unchecked inbox_unchecked_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.inbox_unchecked
    ADD CONSTRAINT inbox_unchecked_pkey PRIMARY KEY (topic, id);

--
-- Name: jobs jobs_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (topic, seq);

--
-- Name: lanes lanes_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.lanes
    ADD CONSTRAINT lanes_pkey PRIMARY KEY (topic, tenant, priority);

--
-- Name: log_state log_state_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.log_state
    ADD CONSTRAINT log_state_pkey PRIMARY KEY (topic, topic_id, version);

--
-- Name: operations operations_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.operations
    ADD CONSTRAINT operations_pkey PRIMARY KEY (id);

--
-- Name: records records_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (topic, seq);

--
-- Name: replays replays_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.replays
    ADD CONSTRAINT replays_pkey PRIMARY KEY (topic, topic_id, asked_from);

--
-- Name: saved_views saved_views_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.saved_views
    ADD CONSTRAINT saved_views_pkey PRIMARY KEY (owner, name);

--
-- Name: schedules schedules_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (name);

--
-- Name: sign_in_tries sign_in_tries_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.sign_in_tries
    ADD CONSTRAINT sign_in_tries_pkey PRIMARY KEY (who);

--
-- Name: sqs_queues sqs_queues_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.sqs_queues
    ADD CONSTRAINT sqs_queues_pkey PRIMARY KEY (topic_id);

--
-- Name: staged staged_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.staged
    ADD CONSTRAINT staged_pkey PRIMARY KEY (attempt, place);

--
-- Name: stages stages_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.stages
    ADD CONSTRAINT stages_pkey PRIMARY KEY (attempt);

--
-- Name: sweep_runs sweep_runs_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.sweep_runs
    ADD CONSTRAINT sweep_runs_pkey PRIMARY KEY (name, finished_at, run);

--
-- Name: sweeps sweeps_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.sweeps
    ADD CONSTRAINT sweeps_pkey PRIMARY KEY (name);

--
-- Name: tallies tallies_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.tallies
    ADD CONSTRAINT tallies_pkey PRIMARY KEY (topic_id, id);

--
-- Name: token_secret token_secret_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.token_secret
    ADD CONSTRAINT token_secret_pkey PRIMARY KEY (singleton);

--
-- Name: topic_reads topic_reads_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.topic_reads
    ADD CONSTRAINT topic_reads_pkey PRIMARY KEY (topic_id);

--
-- Name: topic_schemas topic_schemas_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.topic_schemas
    ADD CONSTRAINT topic_schemas_pkey PRIMARY KEY (topic_id);

--
-- Name: topic_stats topic_stats_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.topic_stats
    ADD CONSTRAINT topic_stats_pkey PRIMARY KEY (topic_id, minute, tenant);

--
-- Name: topic_stats_progress topic_stats_progress_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.topic_stats_progress
    ADD CONSTRAINT topic_stats_progress_pkey PRIMARY KEY (one);

--
-- Name: topics topics_id_key; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.topics
    ADD CONSTRAINT topics_id_key UNIQUE (id);

--
-- Name: topics topics_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.topics
    ADD CONSTRAINT topics_pkey PRIMARY KEY (name);

--
-- Name: user_events user_events_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.user_events
    ADD CONSTRAINT user_events_pkey PRIMARY KEY (id);

--
-- Name: users users_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (id);

--
-- Name: watches watches_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.watches
    ADD CONSTRAINT watches_pkey PRIMARY KEY (wid);

--
-- Name: webhook_secrets webhook_secrets_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.webhook_secrets
    ADD CONSTRAINT webhook_secrets_pkey PRIMARY KEY (topic_id);

--
-- Name: writes writes_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.writes
    ADD CONSTRAINT writes_pkey PRIMARY KEY (write_id);

--
-- Name: api_keys_page; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX api_keys_page ON holdfast.api_keys USING btree (created_at, id);

--
-- Name: archive_finished; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX archive_finished ON ONLY holdfast.archive USING btree (topic, topic_id, finished_at, seq);

--
-- Name: archive_keyed; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX archive_keyed ON ONLY holdfast.archive USING btree (topic, topic_id, tenant, key, finished_at, seq) WHERE (key IS NOT NULL);

--
-- Name: audit_subject; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX audit_subject ON holdfast.audit USING btree (subject, id);

--
-- Name: dedupe_expiring; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX dedupe_expiring ON holdfast.dedupe USING btree (expires_at);

--
-- Name: idempotency_expiring; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX idempotency_expiring ON holdfast.idempotency USING btree (expires_at);

--
-- Name: inbox_place; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX inbox_place ON holdfast.inbox USING btree (place);

--
-- Name: inbox_rejects_old; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX inbox_rejects_old ON holdfast.inbox_rejects USING btree (rejected_at);

--
-- Name: jobs_blocked; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_blocked ON holdfast.jobs USING btree (topic, tenant, grp, seq) WHERE (state = 'blocked'::holdfast.job_state);

--
-- Name: jobs_dead; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_dead ON holdfast.jobs USING btree (topic, dlq_moved_at, seq) WHERE (dlq_moved_at IS NOT NULL);

--
-- Name: jobs_due; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_due ON holdfast.jobs USING btree (topic, tenant, priority DESC, visible_at) WHERE (state = ANY (ARRAY['leased'::holdfast.job_state, 'scheduled'::holdfast.job_state]));

--
-- Name: jobs_expiring; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_expiring ON holdfast.jobs USING btree (topic, expires_at) WHERE ((expires_at IS NOT NULL) AND (state = ANY (ARRAY['ready'::holdfast.job_state, 'scheduled'::holdfast.job_state, 'blocked'::holdfast.job_state, 'leased'::holdfast.job_state])));

--
-- Name: jobs_failures; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_failures ON holdfast.jobs USING btree (topic, failed_in, cluster, failed_at, seq) INCLUDE (deliveries, original_deliveries) WHERE (cluster IS NOT NULL);

--
-- Name: jobs_finished; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_finished ON holdfast.jobs USING btree (topic, updated_at) WHERE (state = ANY (ARRAY['failed'::holdfast.job_state, 'expired'::holdfast.job_state]));

--
-- Name: jobs_first; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_first ON holdfast.jobs USING btree (first_topic_id, first_seq) WHERE (first_topic_id IS NOT NULL);

--
-- Name: jobs_group_out; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE UNIQUE INDEX jobs_group_out ON holdfast.jobs USING btree (topic, tenant, grp) WHERE ((grp IS NOT NULL) AND (original_topic IS NULL) AND (state = ANY (ARRAY['ready'::holdfast.job_state, 'scheduled'::holdfast.job_state, 'leased'::holdfast.job_state])));

--
-- Name: jobs_held; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_held ON holdfast.jobs USING btree (topic, tenant, visible_at) WHERE ((state = 'leased'::holdfast.job_state) AND (tenant <> ''::text));

--
-- Name: jobs_keyed; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_keyed ON holdfast.jobs USING btree (topic, state, tenant, key, seq) WHERE (key IS NOT NULL);

--
-- Name: jobs_pending_key; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE UNIQUE INDEX jobs_pending_key ON holdfast.jobs USING btree (topic, tenant, key) WHERE ((key IS NOT NULL) AND (original_topic IS NULL) AND (state = ANY (ARRAY['ready'::holdfast.job_state, 'scheduled'::holdfast.job_state, 'blocked'::holdfast.job_state])));

--
-- Name: jobs_ready; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_ready ON holdfast.jobs USING btree (topic, tenant, priority DESC, "position") WHERE (state = 'ready'::holdfast.job_state);

--
-- Name: jobs_tagged; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_tagged ON holdfast.jobs USING btree (topic, tag, tenant, priority DESC, "position") WHERE ((state >= 'ready'::holdfast.job_state) AND (state <= 'ready'::holdfast.job_state) AND (tag IS NOT NULL));

--
-- Name: lease_events_read; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX lease_events_read ON ONLY holdfast.lease_events USING brin (at, seq int8_bloom_ops) WITH (pages_per_range='64', autosummarize='on');

--
-- Name: new_lanes_tx; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX new_lanes_tx ON holdfast.new_lanes USING btree (tx);

--
-- Name: operations_ended; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX operations_ended ON holdfast.operations USING btree (ended_at) WHERE (ended_at IS NOT NULL);

--
-- Name: operations_under_way; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX operations_under_way ON holdfast.operations USING btree (heartbeat_at) WHERE (ended_at IS NULL);

--
-- Name: records_tagged; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX records_tagged ON holdfast.records USING btree (topic, tag, seq) WHERE (tag IS NOT NULL);

--
-- Name: results_first; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX results_first ON ONLY holdfast.results USING btree (first_topic_id, first_seq) WHERE (first_topic_id IS NOT NULL);

--
-- Name: results_job; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX results_job ON ONLY holdfast.results USING btree (topic, topic_id, seq);

--
-- Name: schedules_due; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX schedules_due ON holdfast.schedules USING btree (due_at) WHERE (due_at IS NOT NULL);

--
-- Name: sign_in_tries_until; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX sign_in_tries_until ON holdfast.sign_in_tries USING btree (until);

--
-- Name: stages_run; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX stages_run ON holdfast.stages USING btree (run);

--
-- Name: user_events_of; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX user_events_of ON holdfast.user_events USING btree (user_id, id);

--
-- Name: users_username; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE UNIQUE INDEX users_username ON holdfast.users USING btree (username) WHERE (deleted_at IS NULL);

--
-- Name: watches_expiring; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX watches_expiring ON holdfast.watches USING btree (expires_at);

--
-- Name: writes_old; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX writes_old ON holdfast.writes USING btree (committed_at);

--
-- Name: new_lanes add_new_lanes; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE CONSTRAINT TRIGGER add_new_lanes AFTER INSERT ON holdfast.new_lanes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION holdfast.add_new_lanes();

--
-- Name: audit append_only; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON holdfast.audit FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();

--
-- Name: inbox check_inbox; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER check_inbox AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.check_inbox();

--
-- Name: staged check_inbox; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER check_inbox AFTER INSERT ON holdfast.staged REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.check_inbox();

--
-- Name: jobs free_group_of_deleted; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER free_group_of_deleted AFTER DELETE ON holdfast.jobs FOR EACH ROW WHEN (((old.grp IS NOT NULL) AND (old.original_topic IS NULL) AND (old.state = ANY (ARRAY['ready'::holdfast.job_state, 'scheduled'::holdfast.job_state, 'leased'::holdfast.job_state])))) EXECUTE FUNCTION holdfast.free_group();

--
-- Name: jobs free_group_of_ended; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER free_group_of_ended AFTER UPDATE OF state ON holdfast.jobs FOR EACH ROW WHEN (((old.grp IS NOT NULL) AND (old.original_topic IS NULL) AND (old.state = ANY (ARRAY['ready'::holdfast.job_state, 'scheduled'::holdfast.job_state, 'leased'::holdfast.job_state])) AND (new.state = ANY (ARRAY['failed'::holdfast.job_state, 'expired'::holdfast.job_state])))) EXECUTE FUNCTION holdfast.free_group();

--
-- Name: staged hold_stage; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER hold_stage AFTER INSERT ON holdfast.staged REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.hold_stage();

--
-- Name: inbox refuse_drained; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER refuse_drained AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_drained();

--
-- Name: staged refuse_drained; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER refuse_drained AFTER DELETE ON holdfast.staged REFERENCING OLD TABLE AS added FOR EACH STATEMENT WHEN ((current_setting('holdfast.commits'::text, true) = 'on'::text)) EXECUTE FUNCTION holdfast.refuse_drained();

--
-- Name: inbox take_inbox; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER take_inbox AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION holdfast.take_inbox();

--
-- Name: staged take_inbox; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER take_inbox AFTER DELETE ON holdfast.staged REFERENCING OLD TABLE AS added FOR EACH STATEMENT WHEN ((current_setting('holdfast.commits'::text, true) = 'on'::text)) EXECUTE FUNCTION holdfast.take_inbox();

--
-- Name: endings tell; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER tell BEFORE INSERT ON holdfast.endings FOR EACH ROW EXECUTE FUNCTION holdfast.tell();

--
-- PostgreSQL database dump complete
--
