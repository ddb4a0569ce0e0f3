"""A topic's own max_retries is its dlq_threshold, where it names none: rows of the inbox go by it, too.

Locks: none.

Revision ID: 0057
"""

from alembic import op

revision = "0057"
down_revision = "0056"
branch_labels = None
depends_on = None

BEFORE = "coalesce(o.dlq_threshold, d.dlq_threshold)"
AFTER = "coalesce(o.dlq_threshold, o.max_retries, d.dlq_threshold)"


def upgrade() -> None:
    change(BEFORE, AFTER)


def downgrade() -> None:
    change(AFTER, BEFORE)


def change(before: str, after: str) -> None:
    """Make the function anew as it stands, with another text for one that it has once."""
    db = op.get_bind()
    body = db.exec_driver_sql("SELECT pg_get_functiondef('holdfast.take_inbox()'::regprocedure)").scalar_one()
    assert body.count(before) == 1
    db.exec_driver_sql(body.replace(before, after))
