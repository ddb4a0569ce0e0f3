"""What queues hold is written down, minute by minute, where it changes.

Locks: none.

Revision ID: 0054
"""

from alembic import op

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None

UP = (
    # What a queue held when it was looked at in a minute; a row where that is not what the row before says (ADR 0071).
    """
    CREATE TABLE holdfast.depths (
        topic_id integer NOT NULL,
        minute timestamptz NOT NULL,
        ready bigint NOT NULL CHECK (ready >= 0),
        in_flight bigint NOT NULL CHECK (in_flight >= 0),
        scheduled bigint NOT NULL CHECK (scheduled >= 0),
        blocked bigint NOT NULL CHECK (blocked >= 0),
        PRIMARY KEY (topic_id, minute)
    )
    """,
    # When every queue was looked at: what lies between two rows is known only while somebody looked.
    """
    CREATE TABLE holdfast.depth_looks (
        minute timestamptz NOT NULL,
        PRIMARY KEY (minute)
    )
    """,
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE holdfast.depth_looks")
    op.execute("DROP TABLE holdfast.depths")
