"""Webhooks: what becomes of jobs, told over HTTP by jobs in a topic of the service's own. docs/adr/0041.

Revision ID: 0032
"""

from alembic import op
from sqlalchemy import Connection

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


UP = [
    # {url, on, secret}, where secret is a mask; NULL is none.
    "ALTER TABLE holdfast.topics ADD COLUMN webhook json",
    # What deliveries are signed with: apart from the topics, so that no copy of a configuration has it.
    """
    CREATE TABLE holdfast.webhook_secrets (
        topic_id integer PRIMARY KEY,
        secret text NOT NULL
    )
    """,
    # The URL that is told of this job. Not valid: it holds for what is written from now on. No scan under the lock.
    "ALTER TABLE holdfast.jobs ADD COLUMN webhook text",
    """
    ALTER TABLE holdfast.jobs ADD CONSTRAINT jobs_webhook_check CHECK (octet_length(webhook) BETWEEN 1 AND 2048)
        NOT VALID
    """,
    # What of a job is told, and to which URL of its own: that of a dead letter is data.
    """
    CREATE FUNCTION holdfast.about(job holdfast.jobs) RETURNS json LANGUAGE sql STABLE AS $$
        SELECT json_build_object(
            'url', CASE WHEN job.original_topic IS NULL THEN job.webhook END, 'tag', job.tag, 'meta', job.metadata,
            'first_topic_id', job.first_topic_id, 'first_seq', job.first_seq)
    $$
    """,
    # What ends a job writes it here, in the same statement, if somebody may want to hear of it. No row stays: each
    # becomes a delivery, or nothing.
    """
    CREATE TABLE holdfast.endings (
        topic text COLLATE "C" NOT NULL,
        topic_id integer NOT NULL,
        seq bigint NOT NULL,
        event text NOT NULL,
        deliveries integer NOT NULL,
        error text,
        about json NOT NULL
    )
    """,
    """
    CREATE FUNCTION holdfast.tell() RETURNS trigger LANGUAGE plpgsql AS $$
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
        IF url IS NULL OR NEW.topic = 'holdfast.webhooks' THEN  -- or it would go on for ever
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
        -- As text: jsonb would refuse numbers of meta's that json takes, and a job must end whatever its meta is.
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
    END $$
    """,
    "CREATE TRIGGER tell BEFORE INSERT ON holdfast.endings FOR EACH ROW EXECUTE FUNCTION holdfast.tell()",
    # What is put there is sent, and signed.
    """
    ALTER TABLE holdfast.inbox ADD CONSTRAINT "topic: holdfast. is kept for the service's own"
        CHECK (topic NOT LIKE 'holdfast.%')
    """,
]

COMPLETE = {
    "        INSERT INTO holdfast.tallies (topic_id, leased, bytes)": """\
        INSERT INTO holdfast.endings (topic, topic_id, seq, event, deliveries, about)
        SELECT job.topic, job.topic_id, job.seq, 'completed', job.deliveries, holdfast.about(job)
        FROM holdfast.topics t
        WHERE t.name = job.topic AND t.id = job.topic_id
          AND (t.webhook IS NOT NULL OR job.webhook IS NOT NULL);
        INSERT INTO holdfast.tallies (topic_id, leased, bytes)"""
}

DOWN = [
    """ALTER TABLE holdfast.inbox DROP CONSTRAINT "topic: holdfast. is kept for the service's own" """,
    "DROP TABLE holdfast.endings",
    "DROP FUNCTION holdfast.tell",
    "DROP FUNCTION holdfast.about",
    "ALTER TABLE holdfast.jobs DROP COLUMN webhook",
    "DROP TABLE holdfast.webhook_secrets",
    "ALTER TABLE holdfast.topics DROP COLUMN webhook",
]


def changed(db: Connection, name: str, places: dict[str, str]) -> None:
    """Make a function anew as it stands, but with each of these texts, which it has once, by another."""
    [text] = db.exec_driver_sql(
        "SELECT pg_get_functiondef(p.oid) FROM pg_proc p "
        f"WHERE p.pronamespace = 'holdfast'::regnamespace AND p.proname = '{name}'"
    ).scalars()
    for was, now in places.items():
        assert text.count(was) == 1, (name, was)
        text = text.replace(was, now)
    db.exec_driver_sql(text)


def upgrade() -> None:
    db = op.get_bind()
    for statement in UP:
        db.exec_driver_sql(statement)  # as it stands: a colon is no parameter, nor is a %
    changed(db, "complete", COMPLETE)


def downgrade() -> None:
    db = op.get_bind()
    changed(db, "complete", {now: was for was, now in COMPLETE.items()})
    for statement in DOWN:
        db.exec_driver_sql(statement)
