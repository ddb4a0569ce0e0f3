"""holdfast.enqueue takes every option that the inbox takes: tenants, groups, dedupe ids, users and webhooks.

Revision ID: 0047
"""

import runpy
from pathlib import Path

from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

BEFORE = runpy.run_path(str(Path(__file__).with_name("0015_sql_functions.py")))
AS_OWNER, OPTIONS, OPTION_TYPES = (BEFORE[name] for name in ("AS_OWNER", "OPTIONS", "OPTION_TYPES"))
ENQUEUE_BEFORE = [one for one in BEFORE["UP"] if "CREATE FUNCTION holdfast.enqueue" in one]

MORE = """tenant text DEFAULT NULL, "group" text DEFAULT NULL, dedupe_id text DEFAULT NULL, user_id text DEFAULT NULL,
        webhook text DEFAULT NULL"""
KINDS = ("bytea", "text", "jsonb")
# Two functions that differ in optional parameters alone can't be told apart by a call: one takes the other's place.
TYPES_BEFORE = OPTION_TYPES
TYPES = f"{OPTION_TYPES}, text, text, text, text, text"

ENQUEUE = f"""
    CREATE FUNCTION holdfast.enqueue(topic text, payload bytea, {OPTIONS}, {MORE}) RETURNS uuid {AS_OWNER} AS $$
    DECLARE
        t record;
        own_id text;
        seq bigint;
    BEGIN
        IF EXISTS (SELECT 1 FROM holdfast.topics o WHERE o.name = enqueue.topic AND o.schema_version IS NOT NULL) THEN
            RAISE EXCEPTION 'topic "%" has a schema, which this can''t look at', enqueue.topic
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
        -- Which job it is: the first one of its dedupe id, the one that waits under its key, or the newest.
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
    END $$
"""
OTHERS = [
    f"""
    CREATE FUNCTION holdfast.enqueue(topic text, payload {kind}, {OPTIONS}, {MORE}) RETURNS uuid
    LANGUAGE sql SET search_path = pg_catalog, pg_temp
    AS $$
        SELECT holdfast.enqueue($1, convert_to($2::text, 'UTF8'), $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
                                $15, $16, $17)
    $$
    """
    for kind in ("text", "jsonb")
]


def upgrade() -> None:
    replace(TYPES_BEFORE, [ENQUEUE, *OTHERS], TYPES)


def downgrade() -> None:
    replace(TYPES, ENQUEUE_BEFORE, TYPES_BEFORE)


def replace(types: str, made: list[str], made_types: str) -> None:
    """Put functions into the place of those of these types: whoever could run one of them can run the new one."""
    op.execute("CREATE TEMPORARY TABLE may_enqueue (kind text, role text, grants boolean)")
    for kind in KINDS:
        op.execute(
            f"""
            INSERT INTO may_enqueue
            SELECT '{kind}', CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END, g.is_grantable
            FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) g
            WHERE p.oid = 'holdfast.enqueue(text, {kind}, {types})'::regprocedure AND g.grantee <> p.proowner
            """
        )
        op.execute(f"DROP FUNCTION holdfast.enqueue(text, {kind}, {types})")
    for statement in made:
        op.execute(statement)
    for kind in KINDS:
        op.execute(f"REVOKE EXECUTE ON FUNCTION holdfast.enqueue(text, {kind}, {made_types}) FROM PUBLIC")
    op.execute(
        f"""
        DO $$
        DECLARE
            r record;
        BEGIN
            FOR r IN SELECT * FROM may_enqueue LOOP
                EXECUTE format('GRANT EXECUTE ON FUNCTION holdfast.enqueue(text, %s, {made_types}) TO %s%s',
                               r.kind, r.role, CASE WHEN r.grants THEN ' WITH GRANT OPTION' ELSE '' END);
            END LOOP;
        END $$
        """
    )
    op.execute("DROP TABLE may_enqueue")
