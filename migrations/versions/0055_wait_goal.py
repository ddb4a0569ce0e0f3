"""How long a queue's jobs may wait before it counts as late.

Locks: topics ACCESS EXCLUSIVE.

Revision ID: 0055
"""

from alembic import op

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # 0: it never counts as late.
    op.execute("""
        ALTER TABLE holdfast.topics ADD COLUMN wait_goal_ms bigint NOT NULL DEFAULT 60000
            CHECK (wait_goal_ms BETWEEN 0 AND 315360000000)
    """)


def downgrade() -> None:
    op.execute("ALTER TABLE holdfast.topics DROP COLUMN wait_goal_ms")
