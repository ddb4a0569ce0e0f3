"""Sweeps: a row for each, which says who runs it, and from which schedule.

Revision ID: 0011
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

UP = [
    # run: of the last run, NULL before the first; finished_at is NULL while it is under way, and its process says so by
    # heartbeat_at. moved is what it had moved then. due_after: scheduled times up to here have been seen to.
    # schedule: NULL is the default of the settings, '' is none.
    """
    CREATE TABLE holdfast.sweeps (
        name text COLLATE "C" PRIMARY KEY,
        run uuid,
        started_at timestamptz,
        heartbeat_at timestamptz,
        finished_at timestamptz,
        moved bigint NOT NULL DEFAULT 0,
        error text,
        schedule text,
        due_after timestamptz NOT NULL DEFAULT clock_timestamp(),
        CHECK ((run IS NULL) = (started_at IS NULL) AND (run IS NULL) = (heartbeat_at IS NULL))
    ) WITH (
        fillfactor = 25,
        autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0
    )
    """,
]
DOWN = ["DROP TABLE holdfast.sweeps"]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
