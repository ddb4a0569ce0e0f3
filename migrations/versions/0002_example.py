"""An example of a setting.

Locks: topics ACCESS EXCLUSIVE.

Revision ID: 0002
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        ALTER TABLE holdfast.topics ADD COLUMN example_ms bigint NOT NULL DEFAULT 5000
            CHECK (example_ms BETWEEN 0 AND 315360000000)
    """)


def downgrade() -> None:
    op.execute("ALTER TABLE holdfast.topics DROP COLUMN example_ms")
