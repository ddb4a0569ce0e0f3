"""A topic, or tenants of it, can be paused; and a topic drained.

Revision ID: 0028
"""

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

UP = [
    """
    ALTER TABLE holdfast.topics
        ADD COLUMN paused boolean NOT NULL DEFAULT false,
        ADD COLUMN paused_tenants text[] NOT NULL DEFAULT '{}',
        ADD COLUMN draining boolean NOT NULL DEFAULT false
    """,
]

DOWN = [
    "ALTER TABLE holdfast.topics DROP COLUMN paused, DROP COLUMN paused_tenants, DROP COLUMN draining",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
