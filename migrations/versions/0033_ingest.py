"""What comes over /in and who may send it, and events for users.

Revision ID: 0033
"""

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

UP = [
    """
    ALTER TABLE holdfast.topics
        ADD COLUMN accepts text[] NOT NULL DEFAULT
            '{application/json,application/x-www-form-urlencoded,multipart/form-data,text/plain}'
            CHECK (cardinality(accepts) BETWEEN 1 AND 32),
        ADD COLUMN ingest text NOT NULL DEFAULT 'key' CHECK (ingest IN ('key', 'public')),
        ADD COLUMN user_events boolean NOT NULL DEFAULT false
    """,
    # A user's ids ascend in the order of their commits: see send_user_events.sql. Rows live for minutes.
    """
    CREATE TABLE holdfast.user_events (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        user_id text COLLATE "C" NOT NULL,
        event text NOT NULL,
        data text NOT NULL
    ) WITH (
        autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0
    )
    """,
    "CREATE INDEX user_events_of ON holdfast.user_events (user_id, id)",
]
DOWN = [
    "DROP TABLE holdfast.user_events",
    "ALTER TABLE holdfast.topics DROP COLUMN accepts, DROP COLUMN ingest, DROP COLUMN user_events",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
