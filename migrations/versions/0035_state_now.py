"""A job's state by the clock, said once.

Revision ID: 0035
"""

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

UP = [
    # An expression by a name: the planner puts it in place, so it costs what it says.
    """
    CREATE FUNCTION holdfast.state_now(
        state holdfast.job_state, visible_at timestamptz, expires_at timestamptz, cancelled_at timestamptz
    ) RETURNS text LANGUAGE sql STABLE AS $$
        SELECT CASE WHEN state::text IN ('failed', 'expired') THEN state::text
                    WHEN state::text = 'leased' AND visible_at >= now() THEN 'leased'
                    WHEN cancelled_at IS NOT NULL THEN 'cancelled'
                    WHEN expires_at <= now() THEN 'expired'
                    WHEN state::text = 'blocked' THEN 'blocked'
                    WHEN visible_at > now() THEN 'scheduled'
                    ELSE 'ready' END
    $$
    """,
]

DOWN = ["DROP FUNCTION holdfast.state_now"]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
