"""API keys, and who changed what.

Revision ID: 0003
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UP = [
    # A secret's SHA-256, never the secret. After a rotation with a grace the one before is good until old_until.
    """
    CREATE TABLE holdfast.api_keys (
        id text COLLATE "C" PRIMARY KEY CHECK (id ~ '^key_[0-9a-f]{16}$'),
        name text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
        digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
        old_digest bytea UNIQUE CHECK (octet_length(old_digest) = 32),
        old_until timestamptz,
        scopes text[] NOT NULL CHECK (
            cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'delete', 'admin']),
        prefixes text[] COLLATE "C" NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        created_by text NOT NULL,
        rotated_at timestamptz,
        expires_at timestamptz,
        revoked_at timestamptz,
        CHECK ((old_digest IS NULL) = (old_until IS NULL))
    )
    """,
    "CREATE INDEX api_keys_page ON holdfast.api_keys (created_at, id)",
    """
    CREATE TABLE holdfast.audit (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at timestamptz NOT NULL DEFAULT clock_timestamp(),
        actor text NOT NULL,
        actor_name text,
        address text,
        action text NOT NULL,
        subject text COLLATE "C" NOT NULL,
        detail json NOT NULL DEFAULT '{}'
    )
    """,
    "CREATE INDEX audit_subject ON holdfast.audit (subject, id)",
    """
    CREATE FUNCTION holdfast.refuse_change() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        RAISE EXCEPTION '%.% is append-only', TG_TABLE_SCHEMA, TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
    END $$
    """,
    """
    CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.audit
        FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change()
    """,
]

DOWN = [
    "DROP TABLE holdfast.audit",
    "DROP FUNCTION holdfast.refuse_change()",
    "DROP TABLE holdfast.api_keys",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
