"""The schema: types and tables, the functions of app/*/functions, then all that needs both.

A later migration that changes a function runs its file again, which replaces it.

Revision ID: 0001
"""

from alembic import op

from migrations.scripts import run

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# In this order: functions in SQL are checked as they are made, and name those above them. The bodies of others are only
# checked when they run.
FUNCTIONS = (
    "app/topics/functions/sequences.sql",
    "app/audit/functions/refuse_change.sql",
    "app/queue/functions/message_id.sql",
    "app/queue/functions/state_now.sql",
    "app/queue/functions/backoff_ms.sql",
    "app/queue/functions/errors.sql",
    "app/queue/functions/endings.sql",
    "app/queue/functions/groups.sql",
    "app/queue/functions/pending.sql",
    "app/queue/functions/enqueue_plain.sql",
    "app/queue/functions/enqueue_keyed.sql",
    "app/queue/functions/enqueue_deduped.sql",
    "app/queue/functions/nack_keyed.sql",
    "app/queue/functions/requeue.sql",
    "app/queue/functions/has_data.sql",
    "app/queue/functions/log_state.sql",
    "app/queue/functions/append_records.sql",
    "app/queue/functions/trim_log.sql",
    "app/queue/functions/delete_records.sql",
    "app/queue/functions/ledger.sql",
    "app/queue/functions/as_of.sql",
    "app/queue/functions/jobs_as_of.sql",
    "app/queue/functions/find_fault.sql",
    "app/queue/functions/inbox.sql",
    "app/queue/functions/stages.sql",
    "app/queue/functions/enqueue.sql",
    "app/queue/functions/complete.sql",
    "app/queue/functions/assert_lease.sql",
    "app/reapers/functions/days.sql",
    "app/reapers/functions/stats.sql",
    "app/reapers/functions/merge_stats.sql",
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
