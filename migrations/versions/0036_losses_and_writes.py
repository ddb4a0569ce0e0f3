"""Up to which seqs a queue has lost jobs, for its readers; and when it was last written to.

Revision ID: 0036
"""

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

# As in 0010; a job that outlives its time here is lost as well.
LOCK_PENDING = """
    CREATE OR REPLACE FUNCTION holdfast.lock_pending(
        of_topic text, of_tenant text, of_key text,
        OUT seq bigint, OUT state holdfast.job_state, OUT updated_at timestamptz, OUT deliveries integer,
        OUT bytes bigint
    )
    LANGUAGE plpgsql AS $$
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
            INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries)
            VALUES (of_topic, id, seq, 'expired', deliveries);
            INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, %s)
            VALUES (id, -(state = 'ready')::integer, -(state = 'scheduled')::integer, -(state = 'blocked')::integer, 1,
                    %s);
            seq := NULL;
        END IF;
    END $$
"""

UP = [
    # NULL: nothing. Of a topic's rows the highest counts, as the others are summed.
    "ALTER TABLE holdfast.tallies ADD COLUMN ttl_lost_to bigint, ADD COLUMN cap_lost_to bigint",
    LOCK_PENDING % ("expired, bytes, ttl_lost_to", "-bytes, seq"),
    # Either is NULL where only the other happened. The name stays: processes of before still write here.
    "ALTER TABLE holdfast.topic_reads ADD COLUMN written_at timestamptz, ALTER COLUMN read_at DROP NOT NULL",
]

DOWN = [
    "DELETE FROM holdfast.topic_reads WHERE read_at IS NULL",
    "ALTER TABLE holdfast.topic_reads DROP COLUMN written_at, ALTER COLUMN read_at SET NOT NULL",
    LOCK_PENDING % ("expired, bytes", "-bytes"),
    "ALTER TABLE holdfast.tallies DROP COLUMN ttl_lost_to, DROP COLUMN cap_lost_to",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
