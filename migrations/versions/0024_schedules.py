"""Schedules: jobs that are made when a cron expression is due.

Revision ID: 0024
"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

UP = [
    # next_fire: the next time to fire for; NULL while paused. due_at: when to look at it, which is later than that once
    # a fire was refused. last_fire: the time that the last job was made for. payload and fields: the job, as the record
    # that was given has it.
    """
    CREATE TABLE holdfast.schedules (
        name text COLLATE "C" PRIMARY KEY,
        topic text COLLATE "C" NOT NULL,
        cron text NOT NULL,
        time_zone text NOT NULL,
        missed text NOT NULL CHECK (missed IN ('skip', 'once', 'all')),
        paused boolean NOT NULL,
        next_fire timestamptz,
        due_at timestamptz,
        last_fire timestamptz,
        last_seq bigint,
        fires bigint NOT NULL DEFAULT 0,
        error_code text,
        error_text text,
        error_at timestamptz,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        payload bytea NOT NULL,
        fields json NOT NULL,
        CHECK ((next_fire IS NULL) = (due_at IS NULL) AND (next_fire IS NULL OR NOT paused)),
        CHECK ((error_code IS NULL) = (error_text IS NULL) AND (error_code IS NULL) = (error_at IS NULL))
    ) WITH (
        autovacuum_vacuum_scale_factor = 0.05,
        autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0
    )
    """,
    "CREATE INDEX schedules_due ON holdfast.schedules (due_at) WHERE due_at IS NOT NULL",
]
DOWN = ["DROP TABLE holdfast.schedules"]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
