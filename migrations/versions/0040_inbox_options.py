"""The inbox takes every option of an enqueue: tenants, groups, dedupe ids, users and webhooks.

Revision ID: 0040
"""

import runpy
from pathlib import Path

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

BEFORE = runpy.run_path(str(Path(__file__).with_name("0014_inbox.py")))
AS_OWNER, JSON, TEXT, BYTES = (BEFORE[name] for name in ("AS_OWNER", "JSON", "TEXT", "BYTES"))
METADATA_FITS = BEFORE["METADATA_FITS"]
TAKE_BEFORE = next(one for one in BEFORE["UP"] if "CREATE FUNCTION holdfast.take_inbox" in one)

# app/topics/webhook.py: no user, no password, no fragment.
URL = r'^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&*+,;=%-]+)(:[1-9][0-9]{0,4})?([/?][!-"$-~]*)?$'
COLUMNS = {
    "tenant": 'text COLLATE "C"',
    "group": 'text COLLATE "C"',
    "dedupe_id": 'text COLLATE "C"',
    "user_id": "text",
    "webhook": "text",
}
TABLES = ("inbox", "inbox_unchecked", "inbox_rejects")
CHECKS = {
    "tenant: 128 characters at most": "char_length(tenant) <= 128",
    "group: 1 to 128 characters": """char_length("group") BETWEEN 1 AND 128""",
    "dedupe_id: 1 to 256 characters": "char_length(dedupe_id) BETWEEN 1 AND 256",
    "user_id: 1 to 128 characters": "char_length(user_id) BETWEEN 1 AND 128",
    "webhook: an http:// or https:// URL of up to 2048 characters": (
        f"webhook ~* '{URL}' AND octet_length(webhook) <= 2048"
    ),
    "topic: names that end in .fifo ask for a group": """topic NOT LIKE '%.fifo' OR "group" IS NOT NULL""",
}
NO_GROUPS = "topic: .fifo asks for groups, which the inbox does not take"
WITH_USER = """CASE WHEN a.user_id IS NULL THEN a.metadata::json
    ELSE (coalesce(a.metadata, '{}')::jsonb || jsonb_build_object('$user_id', a.user_id))::json END"""

# What is wrong with rows is said by the statement that brings them: of the inbox, or of what is staged.
CHECK = f"""
    CREATE FUNCTION holdfast.check_inbox() RETURNS trigger {AS_OWNER} AS $$
    DECLARE
        one record;
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
        IF fine THEN
            RETURN NULL;
        END IF;
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
        RETURN NULL;
    END $$
"""

# Moves rows to the jobs of their topics, as app/queue/sql/enqueue.sql does: those of one INSERT into the inbox, or
# those that one commit takes out of what is staged. In the order in which they came; rows that are placed singly, for
# their keys, groups or dedupe ids, by place.
TAKE = f"""
    CREATE OR REPLACE FUNCTION holdfast.take_inbox() RETURNS trigger {AS_OWNER} AS $$
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
                       nullif(coalesce(o.dlq_threshold, d.dlq_threshold), 0)))) AS max_deliveries,
                   o.dedupe_window_ms AS window_ms
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
                INSERT INTO holdfast.inbox_unchecked (
                    topic, payload, content_type, metadata, tag, node, priority, delay_ms, run_at, ttl_ms,
                    max_deliveries, key, tenant, "group", dedupe_id, user_id, webhook)
                SELECT a.topic, {BYTES}, a.content_type, a.metadata, a.tag, a.node, a.priority, a.delay_ms, a.run_at,
                       a.ttl_ms, a.max_deliveries, a.key, a.tenant, a."group", a.dedupe_id, a.user_id, a.webhook
                FROM added a WHERE a.topic = g.topic;
                CONTINUE;
            END IF;
            sequence := to_regclass('holdfast.seq_' || t.id);
            IF sequence IS NULL THEN
                RAISE EXCEPTION 'topic "%" was deleted meanwhile', g.topic USING ERRCODE = 'undefined_object';
            END IF;
            bounded := t.max_depth > 0 OR t.cap_records > 0 OR t.cap_bytes > 0;
            IF g.singly THEN
                IF bounded THEN  -- before groups, keys and ids, as everybody takes it
                    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.depth ' || t.id, 0));
                END IF;
                IF (SELECT sum(octet_length({BYTES})) FROM added a WHERE a.topic = g.topic) > 268435456 THEN
                    RAISE EXCEPTION 'these rows for topic "%" are placed one by one, for their keys, groups or dedupe '
                        'ids, and are more than 256 MiB', g.topic USING ERRCODE = 'program_limit_exceeded',
                        HINT = 'Write them in several parts.';
                END IF;
                SELECT count(*)::integer AS size,
                       array_agg({BYTES} ORDER BY a.place) AS payloads, array_agg(a.tag ORDER BY a.place) AS tags,
                       array_agg(a.node ORDER BY a.place) AS nodes, array_agg({WITH_USER} ORDER BY a.place) AS metadata,
                       array_agg(a.tenant ORDER BY a.place) AS tenants,
                       array_agg(a.priority::smallint ORDER BY a.place) AS priorities,
                       array_agg(a.delay_ms ORDER BY a.place) AS delays, array_agg(a.run_at ORDER BY a.place) AS runs,
                       array_agg(a.ttl_ms ORDER BY a.place) AS ttls,
                       array_agg(a.max_deliveries ORDER BY a.place) AS limits,
                       array_agg(nullif(a.content_type, 'application/json') ORDER BY a.place) AS types,
                       array_agg(a.key ORDER BY a.place) AS keys, array_agg(a."group" ORDER BY a.place) AS grps,
                       array_agg(coalesce(a.dedupe_id, CASE WHEN a.topic LIKE '%.fifo'
                                     THEN encode(sha256({BYTES}), 'hex') END) ORDER BY a.place) AS ids,
                       array_agg(a.webhook ORDER BY a.place) AS hooks
                INTO b FROM added a WHERE a.topic = g.topic;
                IF t.window_ms > 0 AND num_nonnulls(VARIADIC b.ids) > 0 THEN
                    SELECT e.seqs, e.duplicate INTO placed FROM holdfast.enqueue_deduped(
                        g.topic, t.id, sequence, b.payloads, b.tags, b.nodes, b.metadata, b.tenants, b.priorities,
                        b.delays, b.runs, b.ttls, b.limits, b.types, b.keys, t.ttl_ms, t.ends, t.max_deliveries, b.grps,
                        b.ids, t.window_ms, ARRAY[b.size], ARRAY[NULL]::text[], 0) e;
                ELSE
                    SELECT e.seqs, '{{}}'::boolean[] AS duplicate INTO placed FROM holdfast.enqueue_keyed(
                        g.topic, t.id, sequence, b.payloads, b.tags, b.nodes, b.metadata, b.tenants, b.priorities,
                        b.delays, b.runs, b.ttls, b.limits, b.types, b.keys, t.ttl_ms, t.ends, t.max_deliveries,
                        CASE WHEN num_nonnulls(VARIADIC b.grps) > 0 THEN b.grps ELSE '{{}}' END) e;
                END IF;
                IF num_nonnulls(VARIADIC b.hooks) > 0 THEN  -- as app/queue/sql/hook.sql
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
                        -- The rows as they came: what an INSERT has added is kept in its order.
                        SELECT a.*, {BYTES} AS bytes, {WITH_USER} AS meta, nextval(sequence) AS seq
                        FROM added a WHERE a.topic = g.topic
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
                -- As app/queue/sql/lock_depth.sql: who adds to this topic waits for the end of this transaction, and of
                -- rows that look at nobody else's, not until now.
                PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.depth ' || t.id, 0));
                SELECT sum(y.ready + y.scheduled + y.blocked + y.leased) AS jobs, sum(y.bytes) AS bytes
                INTO held FROM holdfast.tallies y WHERE y.topic_id = t.id;
                IF held.jobs > nullif(t.max_depth, 0) OR held.jobs > nullif(t.cap_records, 0)
                        OR held.bytes > nullif(t.cap_bytes, 0) THEN
                    RAISE EXCEPTION 'topic "%" has no room for these', g.topic
                        USING ERRCODE = 'configuration_limit_exceeded';
                END IF;
            END IF;
        END LOOP;
        IF TG_TABLE_NAME = 'inbox' THEN
            -- Of others, only rows that can't be seen lie between these.
            DELETE FROM holdfast.inbox i
            WHERE i.place BETWEEN (SELECT min(x.place) FROM added x) AND (SELECT max(x.place) FROM added x);
        END IF;
        RETURN NULL;
    END $$
"""

CHECK_FIRST = """
    CREATE TRIGGER check_inbox AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.check_inbox()
"""


def upgrade() -> None:
    for table in TABLES:
        columns = ", ".join(f'ADD COLUMN "{name}" {kind}' for name, kind in COLUMNS.items())
        op.execute(f"ALTER TABLE holdfast.{table} {columns}")
    op.execute(f'ALTER TABLE holdfast.inbox DROP CONSTRAINT "{NO_GROUPS}"')
    for name, check in CHECKS.items():
        op.execute(f'ALTER TABLE holdfast.inbox ADD CONSTRAINT "{name}" CHECK ({check})')
    for statement in (CHECK, "REVOKE EXECUTE ON FUNCTION holdfast.check_inbox() FROM PUBLIC", TAKE, CHECK_FIRST):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TRIGGER check_inbox ON holdfast.inbox")
    op.execute("DROP FUNCTION holdfast.check_inbox()")
    op.execute(TAKE_BEFORE.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))
    for name in CHECKS:
        op.execute(f'ALTER TABLE holdfast.inbox DROP CONSTRAINT "{name}"')
    op.execute(f"""ALTER TABLE holdfast.inbox ADD CONSTRAINT "{NO_GROUPS}" CHECK (topic NOT LIKE '%.fifo')""")
    for table in TABLES:
        columns = ", ".join(f'DROP COLUMN "{name}"' for name in COLUMNS)
        op.execute(f"ALTER TABLE holdfast.{table} {columns}")
