"""An index for claims that name tags: only of jobs that have one, and only while they are ready.

Locks: jobs SHARE.

Revision ID: 0059
"""

from alembic import op

revision = "0059"
down_revision = "0058"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE INDEX jobs_tagged ON holdfast.jobs (topic, tag, tenant, priority DESC, position)
        WHERE state = 'ready' AND tag IS NOT NULL
        """
    )


def downgrade() -> None:
    op.execute("DROP INDEX holdfast.jobs_tagged")
