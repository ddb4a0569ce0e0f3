"""Users, what is granted to them, and the secret that signs their tokens.

Revision ID: 0016
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

UP = [
    # A deleted user's row stays: who once needed sign-in needs it still, and the audit trail names it. `epoch` is
    # another one from each change of the password on; tokens name the one that they were made in.
    """
    CREATE TABLE holdfast.users (
        id uuid PRIMARY KEY,
        username text COLLATE "C" NOT NULL CHECK (octet_length(username) BETWEEN 1 AND 128),
        password_hash text,
        is_admin boolean NOT NULL,
        epoch integer NOT NULL DEFAULT 1,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        created_by text NOT NULL,
        updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        deleted_at timestamptz,
        CHECK ((password_hash IS NULL) = (deleted_at IS NOT NULL))
    )
    """,
    "CREATE UNIQUE INDEX users_username ON holdfast.users (username) WHERE deleted_at IS NULL",
    """
    CREATE TABLE holdfast.grants (
        id uuid PRIMARY KEY,
        user_id uuid NOT NULL,
        action text NOT NULL CHECK (action IN ('read', 'write', 'consume', 'admin')),
        topic_pattern text COLLATE "C" NOT NULL,
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        created_by text NOT NULL,
        UNIQUE (user_id, action, topic_pattern)
    )
    """,
    # One row, made by the first process that needs it and has no HOLDFAST_JWT_SECRET.
    """
    CREATE TABLE holdfast.token_secret (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        secret bytea NOT NULL CHECK (octet_length(secret) >= 32),
        created_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
]

DOWN = [
    "DROP TABLE holdfast.token_secret",
    "DROP TABLE holdfast.grants",
    "DROP TABLE holdfast.users",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
