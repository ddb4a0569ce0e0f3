"""Buckets of tokens: how many jobs a second topics with a throughput_limit may hand out, where Redis does not say.

Revision ID: 0009
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

UP = [
    # Unlogged: after a crash every bucket begins anew, with a tenth of a second's worth. A sweep takes out those of
    # topics that are gone. at: as of when the tokens were counted. short: whether whoever came last wanted more.
    """
    CREATE UNLOGGED TABLE holdfast.buckets (
        at timestamptz NOT NULL,
        tokens double precision NOT NULL CHECK (tokens >= 0),
        topic_id integer PRIMARY KEY,
        granted integer NOT NULL,
        short boolean NOT NULL
    ) WITH (
        fillfactor = 20,
        autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0
    )
    """,
]
DOWN = ["DROP TABLE holdfast.buckets"]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
