"""The schema: types and tables, the functions of app/*/functions, then everything that needs both.

A later migration that changes a function runs its file again, which replaces the function.

Revision ID: 0001
"""

from alembic import op

from migrations.scripts import run

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# In this order: PostgreSQL checks SQL functions when they are created, and they call those above. The bodies
# of other functions are checked only when they run.
FUNCTIONS = (
    "app/kernel/topics/functions/sequences.sql",
    "app/kernel/audit/functions/refuse_change.sql",
    "app/kernel/functions/jobs.sql",
    "app/kernel/functions/errors.sql",
    "app/kernel/settle/functions/endings.sql",
    "app/kernel/groups/functions/groups.sql",
    "app/kernel/functions/pending.sql",
    "app/kernel/enqueue/functions/enqueue_plain.sql",
    "app/kernel/enqueue/functions/enqueue_keyed.sql",
    "app/kernel/enqueue/functions/enqueue_deduped.sql",
    "app/kernel/settle/functions/nack_keyed.sql",
    "app/features/jobs/functions/requeue.sql",
    "app/kernel/functions/has_data.sql",
    "app/kernel/logs/functions/records.sql",
    "app/kernel/functions/ledger.sql",
    "app/kernel/functions/as_of.sql",
    "app/kernel/functions/find_fault.sql",
    "app/features/inbox/functions/inbox.sql",
    "app/kernel/enqueue/functions/enqueue.sql",
    "app/kernel/settle/functions/complete.sql",
    "app/kernel/settle/functions/assert_lease.sql",
    "app/features/upkeep/functions/days.sql",
    "app/features/stats/functions/stats.sql",
)


def upgrade() -> None:
    run(
        "migrations/schema/types.sql",
        "migrations/schema/tables.sql",
        *FUNCTIONS,
        "migrations/schema/indexes.sql",
        "migrations/schema/views.sql",
        "migrations/schema/triggers.sql",
        "migrations/schema/rights.sql",
        "migrations/schema/rows.sql",
    )


def downgrade() -> None:
    # Alembic's own table lives in the schema, and must outlive it.
    for statement in (
        "ALTER TABLE holdfast.alembic_version SET SCHEMA public",
        "DROP SCHEMA holdfast CASCADE",
        "CREATE SCHEMA holdfast",
        "ALTER TABLE public.alembic_version SET SCHEMA holdfast",
    ):
        op.execute(statement)
