-- The schema of Holdfast: made by `make schema` from the migrations, never by hand.
-- A partition of lease_events for each day is left out; the service makes them ahead.

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
    'deleted'
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
-- Name: topic_type; Type: TYPE; Schema: holdfast; Owner: -
--

CREATE TYPE holdfast.topic_type AS ENUM (
    'log',
    'queue'
);

--
-- Name: create_event_partitions(integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.create_event_partitions(ahead integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
    DECLARE
        today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
        made integer := 0;
        name text;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.lease_events', 0));
        FOR day IN 0..ahead LOOP
            name := 'lease_events_' || to_char(today + day, 'YYYYMMDD');
            CONTINUE WHEN to_regclass('holdfast.' || name) IS NOT NULL;
            EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.lease_events INCLUDING DEFAULTS)', name);
            EXECUTE format(
                'ALTER TABLE holdfast.lease_events ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)', name,
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
-- Name: drop_event_partitions(integer); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.drop_event_partitions(keep_days integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
    DECLARE
        today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
        gone integer := 0;
        name text;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.lease_events', 0));
        FOR name IN
            SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'holdfast.lease_events'::regclass
              AND c.relname < 'lease_events_' || to_char(today - keep_days, 'YYYYMMDD')
            ORDER BY c.relname
        LOOP
            EXECUTE format('DROP TABLE holdfast.%I', name);
            gone := gone + 1;
        END LOOP;
        RETURN gone;
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
-- Name: refuse_change(); Type: FUNCTION; Schema: holdfast; Owner: -
--

CREATE FUNCTION holdfast.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    BEGIN
        RAISE EXCEPTION '%.% is append-only', TG_TABLE_SCHEMA, TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
    END $$;

SET default_tablespace = '';

SET default_table_access_method = heap;

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
    CONSTRAINT api_keys_check CHECK (((old_digest IS NULL) = (old_until IS NULL))),
    CONSTRAINT api_keys_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT api_keys_id_check CHECK ((id ~ '^key_[0-9a-f]{16}$'::text)),
    CONSTRAINT api_keys_name_check CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 128))),
    CONSTRAINT api_keys_old_digest_check CHECK ((octet_length(old_digest) = 32)),
    CONSTRAINT api_keys_scopes_check CHECK (((cardinality(scopes) > 0) AND (scopes <@ ARRAY['read'::text, 'write'::text, 'delete'::text, 'admin'::text])))
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
    CONSTRAINT jobs_check CHECK (((state = 'leased'::holdfast.job_state) = (lease_id IS NOT NULL))),
    CONSTRAINT jobs_check1 CHECK (((state = 'leased'::holdfast.job_state) = (node IS NOT NULL))),
    CONSTRAINT jobs_deliveries_check CHECK ((deliveries >= 0)),
    CONSTRAINT jobs_max_deliveries_check CHECK (((max_deliveries >= 0) AND (max_deliveries <= 10000)))
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_scale_factor='0.1', autovacuum_analyze_scale_factor='0.05', autovacuum_analyze_threshold='5000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY holdfast.jobs ALTER COLUMN payload SET STORAGE EXTERNAL;

--
-- Name: lanes; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.lanes (
    topic text NOT NULL COLLATE pg_catalog."C",
    tenant text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    priority smallint DEFAULT 0 NOT NULL
);

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
    detail text
)
PARTITION BY RANGE (at);

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
    topic_id integer NOT NULL
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
-- Name: topics; Type: TABLE; Schema: holdfast; Owner: -
--

CREATE TABLE holdfast.topics (
    name text NOT NULL COLLATE pg_catalog."C",
    id integer NOT NULL,
    type holdfast.topic_type NOT NULL,
    durability holdfast.durability DEFAULT 'disk'::holdfast.durability NOT NULL,
    lease_ms integer DEFAULT 30000 NOT NULL,
    claim_jitter_ms integer DEFAULT 0 NOT NULL,
    max_deliveries integer DEFAULT 0 NOT NULL,
    on_exhausted holdfast.exhaustion DEFAULT 'redeliver'::holdfast.exhaustion NOT NULL,
    dead_letter text COLLATE pg_catalog."C",
    ttl_ms bigint DEFAULT 0 NOT NULL,
    cap_records bigint DEFAULT 0 NOT NULL,
    cap_bytes bigint DEFAULT 0 NOT NULL,
    discard holdfast.discard DEFAULT 'old'::holdfast.discard NOT NULL,
    idempotency_window_ms bigint DEFAULT 120000 NOT NULL,
    priority integer,
    auto_priority boolean DEFAULT true NOT NULL,
    auto_create boolean DEFAULT true NOT NULL,
    dedupe_node boolean DEFAULT true NOT NULL,
    leases_durable boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    CONSTRAINT topics_cap_bytes_check CHECK ((cap_bytes >= 0)),
    CONSTRAINT topics_cap_records_check CHECK ((cap_records >= 0)),
    CONSTRAINT topics_check CHECK ((dead_letter <> name)),
    CONSTRAINT topics_claim_jitter_ms_check CHECK (((claim_jitter_ms >= 0) AND (claim_jitter_ms <= 5000))),
    CONSTRAINT topics_idempotency_window_ms_check CHECK (((idempotency_window_ms >= 0) AND (idempotency_window_ms <= 604800000))),
    CONSTRAINT topics_lease_ms_check CHECK (((lease_ms >= 100) AND (lease_ms <= 86400000))),
    CONSTRAINT topics_max_deliveries_check CHECK (((max_deliveries >= 0) AND (max_deliveries <= 10000))),
    CONSTRAINT topics_name_check CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$'::text)),
    CONSTRAINT topics_ttl_ms_check CHECK (((ttl_ms >= 0) AND (ttl_ms <= '315360000000'::bigint)))
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
-- Name: audit audit_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);

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
-- Name: tallies tallies_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -
--

ALTER TABLE ONLY holdfast.tallies
    ADD CONSTRAINT tallies_pkey PRIMARY KEY (topic_id, id);

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
-- Name: api_keys_page; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX api_keys_page ON holdfast.api_keys USING btree (created_at, id);

--
-- Name: audit_subject; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX audit_subject ON holdfast.audit USING btree (subject, id);

--
-- Name: jobs_due; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_due ON holdfast.jobs USING btree (topic, tenant, priority DESC, visible_at) WHERE (state = ANY (ARRAY['leased'::holdfast.job_state, 'scheduled'::holdfast.job_state]));

--
-- Name: jobs_expiring; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_expiring ON holdfast.jobs USING btree (topic, expires_at) WHERE ((expires_at IS NOT NULL) AND (state = ANY (ARRAY['ready'::holdfast.job_state, 'scheduled'::holdfast.job_state, 'blocked'::holdfast.job_state, 'leased'::holdfast.job_state])));

--
-- Name: jobs_finished; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_finished ON holdfast.jobs USING btree (topic, updated_at) WHERE (state = ANY (ARRAY['failed'::holdfast.job_state, 'expired'::holdfast.job_state]));

--
-- Name: jobs_ready; Type: INDEX; Schema: holdfast; Owner: -
--

CREATE INDEX jobs_ready ON holdfast.jobs USING btree (topic, tenant, priority DESC, "position") WHERE (state = 'ready'::holdfast.job_state);

--
-- Name: audit append_only; Type: TRIGGER; Schema: holdfast; Owner: -
--

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON holdfast.audit FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();

--
-- PostgreSQL database dump complete
--
