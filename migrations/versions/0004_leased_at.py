"""When a job was last claimed: how long it took is known at its ack, without a look at the ledger.

Revision ID: 0004
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE holdfast.jobs ADD COLUMN leased_at timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE holdfast.jobs DROP COLUMN leased_at")
