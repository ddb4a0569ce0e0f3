"""Tries to sign in are counted for all processes.

Locks: none.

Revision ID: 0052
"""

from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None

UP = (
    # `who` is a digest: a name that was typed may be anything, a password too.
    """
    CREATE TABLE holdfast.sign_in_tries (
        until timestamptz NOT NULL,
        tries integer NOT NULL CHECK (tries >= 0),
        who bytea NOT NULL CHECK (octet_length(who) = 32),
        PRIMARY KEY (who)
    )
    """,
    "CREATE INDEX sign_in_tries_until ON holdfast.sign_in_tries (until)",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE holdfast.sign_in_tries")
