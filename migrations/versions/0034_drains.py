"""Since when a topic is drained; and the inbox takes nothing for one that is.

Revision ID: 0034
"""

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

# Rows with a version of a schema were taken in before, and have been looked at since: those still go through.
REFUSE = """
    CREATE FUNCTION holdfast.refuse_drained() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    DECLARE
        drained text;
    BEGIN
        SELECT t.name INTO drained
        FROM (SELECT DISTINCT x.topic FROM added x WHERE x.checked IS NULL) a
        JOIN holdfast.topics t ON t.name = a.topic WHERE t.draining ORDER BY t.name LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'topic "%" is drained: it takes no more jobs until it is resumed', drained
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        RETURN NULL;
    END $$
"""

UP = [
    "ALTER TABLE holdfast.topics ADD COLUMN drained_at timestamptz",
    "UPDATE holdfast.topics SET drained_at = clock_timestamp() WHERE draining",
    REFUSE,
    "REVOKE ALL ON FUNCTION holdfast.refuse_drained() FROM PUBLIC",
    # Triggers of one kind fire by their names: this one before take_inbox.
    """
    CREATE TRIGGER refuse_drained AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_drained()
    """,
]

DOWN = [
    "DROP TRIGGER refuse_drained ON holdfast.inbox",
    "DROP FUNCTION holdfast.refuse_drained()",
    "ALTER TABLE holdfast.topics DROP COLUMN drained_at",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
