"""leases_durable is true for every topic: leases always survive a restart.

Locks: topics ACCESS EXCLUSIVE.

Revision ID: 0058
"""

from alembic import op

revision = "0058"
down_revision = "0057"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE holdfast.topics ALTER COLUMN leases_durable SET DEFAULT true")
    op.execute("UPDATE holdfast.topics SET leases_durable = true WHERE NOT leases_durable")


def downgrade() -> None:
    op.execute("ALTER TABLE holdfast.topics ALTER COLUMN leases_durable SET DEFAULT false")
