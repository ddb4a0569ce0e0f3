"""Watches: what a client watches over server-sent events, and how far it has been told, on whichever process it is
connected to.

Revision ID: 0006
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UP = [
    # holder: the connection that the watch is told on, made anew by each; NULL before the first. places is
    # {topic: [topic id, seq, whether the client chose the seq]}. expires_at moves seldom, so that saving places stays
    # a HOT update.
    """
    CREATE TABLE holdfast.watches (
        expires_at timestamptz NOT NULL,
        holder uuid,
        wid text COLLATE "C" PRIMARY KEY,
        owner text COLLATE "C" NOT NULL,
        options json NOT NULL,
        places json NOT NULL
    ) WITH (
        fillfactor = 50,
        autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0
    )
    """,
    "CREATE INDEX watches_expiring ON holdfast.watches (expires_at)",
]
DOWN = ["DROP TABLE holdfast.watches"]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
