"""Tenants: weights and limits of a topic, keys that are bound to one, and an index of what tenants have in flight.

Revision ID: 0020
"""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

# Both of named tenants alone: a topic without tenants pays for neither.
UP = [
    "ALTER TABLE holdfast.topics ADD COLUMN tenant_weights jsonb NOT NULL DEFAULT '{}'",
    "ALTER TABLE holdfast.topics ADD COLUMN tenant_limits jsonb NOT NULL DEFAULT '{}'",
    "ALTER TABLE holdfast.api_keys ADD COLUMN tenant text",
    """
    CREATE INDEX jobs_held ON holdfast.jobs (topic, tenant, visible_at)
    WHERE state = 'leased' AND tenant <> ''
    """,
]
DOWN = [
    "DROP INDEX holdfast.jobs_held",
    "ALTER TABLE holdfast.api_keys DROP COLUMN tenant",
    "ALTER TABLE holdfast.topics DROP COLUMN tenant_limits",
    "ALTER TABLE holdfast.topics DROP COLUMN tenant_weights",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
