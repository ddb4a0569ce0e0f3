"""When topics were last read.

Revision ID: 0029
"""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

UP = [
    # Beside the topics: what is written every few seconds must not change their rows, which caches go by.
    """
    CREATE TABLE holdfast.topic_reads (
        topic_id integer PRIMARY KEY,
        read_at timestamptz NOT NULL
    ) WITH (fillfactor = 50)
    """,
]

DOWN = ["DROP TABLE holdfast.topic_reads"]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
