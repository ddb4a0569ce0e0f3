"""Keys and grants that hide payloads; a reaper's earlier runs; measurements of this instance.

Locks: api_keys ACCESS EXCLUSIVE, grants ACCESS EXCLUSIVE.

Revision ID: 0050
"""

from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None

UP = (
    "ALTER TABLE holdfast.api_keys ADD COLUMN hides_payloads boolean NOT NULL DEFAULT false",
    "ALTER TABLE holdfast.grants ADD COLUMN hides_payloads boolean NOT NULL DEFAULT false",
    # Runs that moved something, or failed: the last ones of each sweep.
    """
    CREATE TABLE holdfast.sweep_runs (
        name text NOT NULL,
        run uuid NOT NULL,
        started_at timestamptz NOT NULL,
        finished_at timestamptz NOT NULL,
        moved bigint NOT NULL,
        error text,
        PRIMARY KEY (name, finished_at, run)
    )
    """,
    """
    CREATE TABLE holdfast.benches (
        id uuid PRIMARY KEY,
        started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        finished_at timestamptz,
        actor text NOT NULL,
        version text NOT NULL,
        figures text
    )
    """,
    # One at a time.
    "CREATE UNIQUE INDEX benches_under_way ON holdfast.benches ((true)) WHERE finished_at IS NULL",
)
DOWN = (
    "DROP TABLE holdfast.benches",
    "DROP TABLE holdfast.sweep_runs",
    "ALTER TABLE holdfast.grants DROP COLUMN hides_payloads",
    "ALTER TABLE holdfast.api_keys DROP COLUMN hides_payloads",
)


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
