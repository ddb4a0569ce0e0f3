"""Buckets of tokens begin full and hold a second's worth: whether a caller ran short no longer matters.

Locks: buckets ACCESS EXCLUSIVE.

Revision ID: 0056
"""

from alembic import op

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # The version before still writes the column. A later migration drops it.
    op.execute("ALTER TABLE holdfast.buckets ALTER COLUMN short SET DEFAULT false")


def downgrade() -> None:
    op.execute("ALTER TABLE holdfast.buckets ALTER COLUMN short DROP DEFAULT")
