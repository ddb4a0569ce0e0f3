"""The order of a topic's jobs: which end of the priorities is first, where returned jobs go, and how they age.

Revision ID: 0019
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

UP = [
    """
    ALTER TABLE holdfast.topics
        ADD COLUMN priority_order text COLLATE "C" NOT NULL DEFAULT 'highest_first'
            CHECK (priority_order IN ('highest_first', 'lowest_first')),
        ADD COLUMN retry_order text COLLATE "C" NOT NULL DEFAULT 'front' CHECK (retry_order IN ('front', 'back')),
        ADD COLUMN aging_ms bigint NOT NULL DEFAULT 0 CHECK (aging_ms BETWEEN 0 AND 315360000000)
    """,
]
DOWN = [
    """
    ALTER TABLE holdfast.topics DROP COLUMN priority_order, DROP COLUMN retry_order, DROP COLUMN aging_ms
    """,
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
