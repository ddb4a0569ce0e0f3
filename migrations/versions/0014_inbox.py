"""The inbox: what SQL users insert into it becomes jobs.

Revision ID: 0014
"""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# Functions that run as their owner: their names mean what they meant here, and the plans of single rows go by index.
AS_OWNER = """LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off"""

JSON = r"(a.content_type IS NULL OR a.content_type ~* '^ *(application/json|[^;]*\+json) *(;|$)')"
TEXT = "coalesce(a.payload_text, convert_from(a.payload, 'UTF8'))"
BYTES = "coalesce(a.payload, convert_to(a.payload_text, 'UTF8'))"
METADATA_FITS = "(a.metadata IS NULL OR jsonb_typeof(a.metadata::jsonb) = 'object')"

UP = [
    # What the service gives a topic that was left to it, as its settings say. Who starts it keeps this up to date.
    """
    CREATE TABLE holdfast.defaults (
        ttl_ms bigint NOT NULL DEFAULT 86400000,
        max_retries integer NOT NULL DEFAULT 3,
        dlq_threshold integer NOT NULL DEFAULT 3,
        one_row boolean PRIMARY KEY DEFAULT true CHECK (one_row)
    )
    """,
    "INSERT INTO holdfast.defaults DEFAULT VALUES",
    # checked: the version of the topic's schema that the payload was found to fit; the service fills it in.
    # Rows stay for the length of a statement, so nothing is lost with them: UNLOGGED.
    r"""
    CREATE UNLOGGED TABLE holdfast.inbox (
        topic text COLLATE "C" NOT NULL,
        payload bytea,
        payload_text text,
        content_type text,
        metadata text,
        tag text,
        node text,
        priority integer,
        delay_ms bigint,
        run_at timestamptz,
        ttl_ms bigint,
        max_deliveries integer,
        key text COLLATE "C",
        checked integer,
        place bigint GENERATED ALWAYS AS IDENTITY,
        CONSTRAINT "topic: names that end in .dlq are kept for dead letters" CHECK (topic NOT LIKE '%.dlq'),
        CONSTRAINT "payload or payload_text: one of them" CHECK (num_nonnulls(payload, payload_text) = 1),
        CONSTRAINT "payload and metadata: 1 MiB at most" CHECK (
            coalesce(octet_length(payload), octet_length(payload_text)) + coalesce(octet_length(metadata), 0)
            <= 1048576),
        CONSTRAINT "metadata: 16 KiB at most" CHECK (octet_length(metadata) <= 16384),
        CONSTRAINT "content_type: type/subtype, of up to 255 characters" CHECK (
            content_type ~ '^[!#$&^_.+A-Za-z0-9-]+/[!#$&^_.+A-Za-z0-9-]+( *;[ -~]*)?$' AND length(content_type) < 256),
        CONSTRAINT "tag: 256 bytes at most" CHECK (octet_length(tag) <= 256),
        CONSTRAINT "node: 128 bytes at most" CHECK (octet_length(node) <= 128),
        CONSTRAINT "priority: 0 to 9" CHECK (priority BETWEEN 0 AND 9),
        CONSTRAINT "delay_ms: 0 to 315360000000, ten years" CHECK (delay_ms BETWEEN 0 AND 315360000000),
        CONSTRAINT "run_at: a time of these millennia" CHECK (
            run_at < '10000-01-01 00:00:00+00' AND run_at > '-infinity'),
        CONSTRAINT "ttl_ms: 0 to 315360000000, ten years" CHECK (ttl_ms BETWEEN 0 AND 315360000000),
        CONSTRAINT "max_deliveries: 0 to 10000" CHECK (max_deliveries BETWEEN 0 AND 10000),
        CONSTRAINT "key: 1 to 256 characters" CHECK (char_length(key) BETWEEN 1 AND 256)
    ) WITH (
        autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0
    )
    """,
    "CREATE INDEX inbox_place ON holdfast.inbox (place)",
    # What is for topics that have a schema, until the service has looked at it.
    """
    CREATE TABLE holdfast.inbox_unchecked (
        id bigint GENERATED ALWAYS AS IDENTITY,
        run_at timestamptz,
        delay_ms bigint,
        ttl_ms bigint,
        inserted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        priority integer,
        max_deliveries integer,
        topic text COLLATE "C" NOT NULL,
        content_type text,
        metadata text,
        tag text,
        node text,
        key text COLLATE "C",
        payload bytea NOT NULL,
        PRIMARY KEY (topic, id)
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)
    """,
    # What did not go in, and why. Kept for 14 days.
    """
    CREATE TABLE holdfast.inbox_rejects (
        rejected_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        inserted_at timestamptz NOT NULL,
        run_at timestamptz,
        delay_ms bigint,
        ttl_ms bigint,
        priority integer,
        max_deliveries integer,
        topic text COLLATE "C" NOT NULL,
        content_type text,
        metadata text,
        tag text,
        node text,
        key text COLLATE "C",
        payload bytea NOT NULL,
        reason text NOT NULL
    )
    """,
    "CREATE INDEX inbox_rejects_old ON holdfast.inbox_rejects (rejected_at)",
    # Lanes that a transaction has jobs for. They become known at its commit: to add them at once would keep everybody
    # waiting who adds the same, however long the transaction goes on.
    """
    CREATE TABLE holdfast.new_lanes (
        tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
        priority smallint NOT NULL,
        topic text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)
    """,
    "CREATE INDEX new_lanes_tx ON holdfast.new_lanes (tx)",
    # The transaction holds its topics' sequences, so that they are not deleted before it ends.
    f"""
    CREATE FUNCTION holdfast.add_new_lanes() RETURNS trigger {AS_OWNER} AS $$
    BEGIN
        WITH mine AS (
            DELETE FROM holdfast.new_lanes n WHERE n.tx = pg_current_xact_id() RETURNING n.topic, n.tenant, n.priority
        )
        INSERT INTO holdfast.lanes (topic, tenant, priority)
        SELECT DISTINCT m.topic, m.tenant, m.priority FROM mine m ORDER BY 1, 2, 3
        ON CONFLICT DO NOTHING;
        RETURN NULL;
    END $$
    """,
    """
    CREATE CONSTRAINT TRIGGER add_new_lanes AFTER INSERT ON holdfast.new_lanes DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION holdfast.add_new_lanes()
    """,
    # How deep JSON nests.
    r"""
    CREATE FUNCTION holdfast.json_depth(document text) RETURNS bigint LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp AS $$
        SELECT coalesce(max(d.depth), 0) FROM (
            SELECT sum(CASE WHEN b.bracket IN ('[', '{') THEN 1 ELSE -1 END) OVER (ORDER BY b.ord) AS depth
            FROM unnest(string_to_array(
                regexp_replace(regexp_replace(document, '"([^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g'), NULL
            )) WITH ORDINALITY AS b(bracket, ord)
        ) d
    $$
    """,
    # What is wrong with a record; NULL: nothing is.
    f"""
    CREATE FUNCTION holdfast.find_fault(payload text, content_type text, metadata text) RETURNS text LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        reason text;
    BEGIN
        BEGIN
            IF jsonb_typeof(metadata::jsonb) <> 'object' THEN
                RETURN 'metadata is no JSON object';
            END IF;
        EXCEPTION WHEN data_exception OR statement_too_complex THEN
            GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
            RETURN 'metadata is no JSON that can be kept: ' || left(coalesce(nullif(reason, ''), SQLERRM), 300);
        END;
        IF holdfast.json_depth(metadata) > 128 THEN
            RETURN 'metadata is nested more than 128 levels deep';
        END IF;
        IF {JSON.replace("a.", "find_fault.")} THEN
            BEGIN
                PERFORM payload::jsonb;
            EXCEPTION WHEN data_exception OR statement_too_complex THEN
                GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
                RETURN 'the payload is no JSON that can be kept, which '
                       || coalesce(find_fault.content_type, 'application/json (no content_type)') || ' says: '
                       || left(coalesce(nullif(reason, ''), SQLERRM), 300);
            END;
            IF holdfast.json_depth(payload) > 128 THEN
                RETURN 'the payload is nested more than 128 levels deep';
            END IF;
        END IF;
        RETURN NULL;
    END $$
    """,
    # Moves the rows of one INSERT to the jobs of their topics, as app/queue/sql/enqueue.sql does: in the order in which
    # they came.
    f"""
    CREATE FUNCTION holdfast.take_inbox() RETURNS trigger {AS_OWNER} AS $$
    DECLARE
        g record;
        t record;
        one record;
        sequence regclass;
        held record;
        fine boolean;
        fault text;
    BEGIN
        BEGIN
            SELECT bool_and({METADATA_FITS}
                            AND (a.metadata IS NULL OR length(a.metadata) <= 256
                                 OR holdfast.json_depth(a.metadata) <= 128)
                            AND CASE WHEN {JSON} THEN
                                    {TEXT}::jsonb IS NOT NULL
                                    AND (octet_length({BYTES}) <= 256
                                         OR length({TEXT}) - length(translate({TEXT}, '[{{', '')) <= 128
                                         OR holdfast.json_depth({TEXT}) <= 128)
                                WHEN a.content_type ILIKE 'text/%' THEN {TEXT} IS NOT NULL
                                ELSE true END)
            INTO fine FROM added a;
        EXCEPTION WHEN data_exception OR statement_too_complex THEN
            fine := false;
        END;
        IF NOT fine THEN
            FOR one IN SELECT x.*, row_number() OVER (ORDER BY x.place) AS number FROM added x ORDER BY x.place LOOP
                BEGIN
                    fault := holdfast.find_fault(
                        CASE WHEN {JSON.replace("a.", "one.")} OR one.content_type ILIKE 'text/%'
                             THEN {TEXT.replace("a.", "one.")} END,
                        one.content_type, one.metadata);
                EXCEPTION WHEN data_exception THEN
                    fault := 'the payload is not UTF-8, which ' || coalesce(one.content_type, 'application/json')
                             || ' must be here';
                END;
                IF fault IS NOT NULL THEN
                    RAISE EXCEPTION 'row % for topic "%": %', one.number, one.topic, fault
                        USING ERRCODE = 'invalid_json_text';
                END IF;
            END LOOP;
        END IF;
        FOR g IN
            SELECT x.topic, min(coalesce(x.checked, 0)) AS checked, bool_or(x.key IS NOT NULL) AS keyed,
                   bool_or(x.priority > 0) AS lanes
            FROM added x GROUP BY x.topic ORDER BY x.topic
        LOOP
            SELECT o.id, o.type, o.schema_version, o.max_depth, coalesce(o.ttl_ms, d.ttl_ms) AS ttl_ms,
                   CASE WHEN o.discard = 'reject' THEN o.cap_records ELSE 0 END AS cap_records,
                   CASE WHEN o.discard = 'reject' THEN o.cap_bytes ELSE 0 END AS cap_bytes,
                   o.max_deliveries IS NULL OR o.on_exhausted <> 'redeliver' AS ends,
                   coalesce(o.max_deliveries, greatest(1, least(
                       coalesce(o.max_retries, d.max_retries),
                       nullif(coalesce(o.dlq_threshold, d.dlq_threshold), 0)))) AS max_deliveries
            INTO t FROM holdfast.topics o CROSS JOIN holdfast.defaults d WHERE o.name = g.topic;
            IF t.id IS NULL THEN
                RAISE EXCEPTION 'there is no topic "%"', g.topic USING ERRCODE = 'undefined_object',
                    HINT = 'Make it first: PUT /v0/topics/' || g.topic || ' with {{"type": "queue"}}.';
            END IF;
            IF t.type <> 'queue' THEN
                RAISE EXCEPTION 'topic "%" is a log, and the inbox takes jobs for queues', g.topic
                    USING ERRCODE = 'wrong_object_type';
            END IF;
            IF t.schema_version <> g.checked THEN
                INSERT INTO holdfast.inbox_unchecked (topic, payload, content_type, metadata, tag, node, priority,
                                                      delay_ms, run_at, ttl_ms, max_deliveries, key)
                SELECT a.topic, {BYTES}, a.content_type, a.metadata, a.tag, a.node, a.priority, a.delay_ms, a.run_at,
                       a.ttl_ms, a.max_deliveries, a.key
                FROM added a WHERE a.topic = g.topic;
                CONTINUE;
            END IF;
            sequence := to_regclass('holdfast.seq_' || t.id);
            IF sequence IS NULL THEN
                RAISE EXCEPTION 'topic "%" was deleted meanwhile', g.topic USING ERRCODE = 'undefined_object';
            END IF;
            IF t.max_depth > 0 OR t.cap_records > 0 OR t.cap_bytes > 0 THEN
                -- As app/queue/sql/lock_depth.sql: whoever adds to this topic waits for the end of this transaction.
                PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.depth ' || t.id, 0));
            END IF;
            IF g.keyed THEN
                PERFORM e.seqs FROM (
                    SELECT array_agg({BYTES} ORDER BY a.place) AS payloads, array_agg(a.tag ORDER BY a.place) AS tags,
                           array_agg(a.node ORDER BY a.place) AS nodes,
                           array_agg(a.metadata::json ORDER BY a.place) AS metadata,
                           array_agg(a.priority::smallint ORDER BY a.place) AS priorities,
                           array_agg(a.delay_ms ORDER BY a.place) AS delays,
                           array_agg(a.run_at ORDER BY a.place) AS runs,
                           array_agg(a.ttl_ms ORDER BY a.place) AS ttls,
                           array_agg(a.max_deliveries ORDER BY a.place) AS limits,
                           array_agg(nullif(a.content_type, 'application/json') ORDER BY a.place) AS types,
                           array_agg(a.key ORDER BY a.place) AS keys
                    FROM added a WHERE a.topic = g.topic
                ) r CROSS JOIN LATERAL holdfast.enqueue_keyed(
                    g.topic, t.id, sequence, r.payloads, r.tags, r.nodes, r.metadata, '{{}}', r.priorities, r.delays,
                    r.runs, r.ttls, r.limits, r.types, r.keys, t.ttl_ms, t.ends, t.max_deliveries) e;
            ELSE
                WITH clock AS MATERIALIZED (
                    SELECT clock_timestamp() AS at
                ), job AS (
                    INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, priority, visible_at, created_at,
                                               updated_at, expires_at, max_deliveries, tag, producer, metadata, payload,
                                               content_type)
                    SELECT r.topic, t.id, r.seq, r.seq,
                           CASE WHEN greatest(r.run_at, c.at + r.delay_ms * interval '1 ms') > c.at
                                THEN 'scheduled' ELSE 'ready' END::holdfast.job_state,
                           coalesce(r.priority, 0)::smallint,
                           greatest(r.run_at, c.at + r.delay_ms * interval '1 ms', c.at), c.at, c.at,
                           c.at + nullif(coalesce(r.ttl_ms, t.ttl_ms), 0) * interval '1 ms',
                           r.max_deliveries, r.tag, r.node, r.metadata::json, r.bytes,
                           nullif(r.content_type, 'application/json')
                    FROM (
                        -- The rows as they came: what an INSERT has added is kept in its order.
                        SELECT a.*, {BYTES} AS bytes, nextval(sequence) AS seq FROM added a WHERE a.topic = g.topic
                    ) r CROSS JOIN clock c
                    RETURNING seq, state, visible_at, producer, octet_length(payload) AS size
                ), event AS (
                    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, node, until)
                    SELECT g.topic, t.id, j.seq, 'enqueued', 0, j.producer,
                           CASE WHEN j.state = 'scheduled' THEN j.visible_at END
                    FROM job j
                )
                INSERT INTO holdfast.tallies (topic_id, ready, scheduled, bytes)
                SELECT t.id, count(*) FILTER (WHERE j.state = 'ready'), count(*) FILTER (WHERE j.state = 'scheduled'),
                       sum(j.size)
                FROM job j;
            END IF;
            INSERT INTO holdfast.new_lanes (topic, tenant, priority)
            SELECT g.topic, '', l.priority
            FROM (
                SELECT 0 AS priority WHERE NOT g.lanes IS TRUE
                UNION SELECT coalesce(a.priority, 0) FROM added a WHERE g.lanes AND a.topic = g.topic
            ) l
            WHERE NOT EXISTS (
                SELECT 1 FROM holdfast.lanes k WHERE k.topic = g.topic AND k.tenant = '' AND k.priority = l.priority
            );
            IF t.max_depth > 0 OR t.cap_records > 0 OR t.cap_bytes > 0 THEN
                SELECT sum(y.ready + y.scheduled + y.blocked + y.leased) AS jobs, sum(y.bytes) AS bytes
                INTO held FROM holdfast.tallies y WHERE y.topic_id = t.id;
                IF held.jobs > nullif(t.max_depth, 0) OR held.jobs > nullif(t.cap_records, 0)
                        OR held.bytes > nullif(t.cap_bytes, 0) THEN
                    RAISE EXCEPTION 'topic "%" has no room for these', g.topic
                        USING ERRCODE = 'configuration_limit_exceeded';
                END IF;
            END IF;
        END LOOP;
        -- Of others, only rows that can't be seen lie between these.
        DELETE FROM holdfast.inbox i
        WHERE i.place BETWEEN (SELECT min(x.place) FROM added x) AND (SELECT max(x.place) FROM added x);
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER take_inbox AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.take_inbox()
    """,
    *(
        f"REVOKE EXECUTE ON FUNCTION holdfast.{one} FROM PUBLIC"
        for one in ("take_inbox()", "add_new_lanes()", "find_fault(text, text, text)")
    ),
]
DOWN = [
    "DROP TABLE holdfast.inbox, holdfast.inbox_unchecked, holdfast.inbox_rejects, holdfast.new_lanes, "
    "holdfast.defaults",
    "DROP FUNCTION holdfast.take_inbox, holdfast.add_new_lanes, holdfast.find_fault, holdfast.json_depth",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
