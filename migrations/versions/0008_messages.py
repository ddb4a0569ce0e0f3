"""What the messages dialect needs of a job: its payload's content type, and an id that a dead letter keeps; and counts
of what failed or expired.

Revision ID: 0008
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UP = [
    # content_type: NULL is application/json. first_*: the job that a dead letter was at first; NULL: it is that job.
    """
    ALTER TABLE holdfast.jobs
        ADD COLUMN content_type text,
        ADD COLUMN first_topic_id integer,
        ADD COLUMN first_seq bigint
    """,
    "CREATE INDEX jobs_first ON holdfast.jobs (first_topic_id, first_seq) WHERE first_topic_id IS NOT NULL",
    """
    ALTER TABLE holdfast.tallies
        ADD COLUMN failed bigint NOT NULL DEFAULT 0,
        ADD COLUMN expired bigint NOT NULL DEFAULT 0
    """,
    """
    INSERT INTO holdfast.tallies (topic_id, failed, expired)
    SELECT min(topic_id), count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state = 'expired')
    FROM holdfast.jobs WHERE state IN ('failed', 'expired') GROUP BY topic
    """,
]

DOWN = [
    "ALTER TABLE holdfast.tallies DROP COLUMN failed, DROP COLUMN expired",
    "DROP INDEX holdfast.jobs_first",
    "ALTER TABLE holdfast.jobs DROP COLUMN content_type, DROP COLUMN first_topic_id, DROP COLUMN first_seq",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
