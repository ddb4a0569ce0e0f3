"""A keyed job that a successor finds expired is counted for its tenant, as those are that a sweep finds.

Revision ID: 0045
"""

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

# As in 0036, apart from what its event says.
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
            INSERT INTO holdfast.lease_events (%s)
            VALUES (%s);
            INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, expired, bytes, ttl_lost_to)
            VALUES (id, -(state = 'ready')::integer, -(state = 'scheduled')::integer, -(state = 'blocked')::integer, 1,
                    -bytes, seq);
            seq := NULL;
        END IF;
    END $$
"""


def upgrade() -> None:
    columns = "topic, topic_id, seq, event, deliveries, tenant"
    op.execute(LOCK_PENDING % (columns, "of_topic, id, seq, 'expired', deliveries, nullif(of_tenant, '')"))


def downgrade() -> None:
    columns = "topic, topic_id, seq, event, deliveries"
    op.execute(LOCK_PENDING % (columns, "of_topic, id, seq, 'expired', deliveries"))
