"""Schemas that payloads of a topic must fit.

Revision ID: 0013
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

UP = [
    # A row stays without a schema once that is taken back: versions of one topic's schemas never come twice, so that
    # what a process has compiled of a version is good for as long as it likes.
    """
    CREATE TABLE holdfast.topic_schemas (
        topic_id integer PRIMARY KEY,
        version integer NOT NULL DEFAULT 1 CHECK (version > 0),
        format text CHECK (format IN ('json_schema', 'avro')),
        schema text CHECK (octet_length(schema) <= 262144),
        updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        CHECK ((schema IS NULL) = (format IS NULL))
    )
    """,
    # Of the schema that counts; NULL: there is none.
    "ALTER TABLE holdfast.topics ADD COLUMN schema_version integer CHECK (schema_version > 0)",
]
DOWN = [
    "ALTER TABLE holdfast.topics DROP COLUMN schema_version",
    "DROP TABLE holdfast.topic_schemas",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
