"""Views for readers: jobs by the state that they are in now, and dead letters. Docs/spark.md has the role that reads.

Revision ID: 0039
"""

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

# As messages is for the messages dialect: the stored word says "leased" of a lease that has ended.
JOB_STATES = """
    CREATE VIEW holdfast.job_states AS
    SELECT j.topic, j.seq, holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state,
           j.tenant, j.key, j.grp, j.priority, j.tag, j.created_at, j.updated_at, j.visible_at, j.expires_at,
           j.deliveries, j.crashes, j.max_deliveries, j.node, j.leased_at, j.progress, j.last_error,
           j.original_topic, j.original_seq, j.original_deliveries, j.dlq_moved_at,
           j.content_type, j.metadata, j.payload
    FROM holdfast.jobs j
"""
DEAD_LETTERS = """
    CREATE VIEW holdfast.dead_letters AS
    SELECT s.* FROM holdfast.job_states s WHERE s.dlq_moved_at IS NOT NULL
"""


def upgrade() -> None:
    op.execute(JOB_STATES)
    op.execute(DEAD_LETTERS)


def downgrade() -> None:
    op.execute("DROP VIEW holdfast.dead_letters")
    op.execute("DROP VIEW holdfast.job_states")
