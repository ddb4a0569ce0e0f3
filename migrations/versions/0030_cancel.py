"""Jobs that were cancelled while somebody worked on them.

Revision ID: 0030
"""

from alembic import op
from sqlalchemy import Connection

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

UP = [
    "ALTER TYPE holdfast.job_event ADD VALUE IF NOT EXISTS 'cancelled'",
    # When a job under a good lease was cancelled; it has outlived its time from then on, so that whatever looks at that
    # leaves it alone once the lease has ended.
    "ALTER TABLE holdfast.jobs ADD COLUMN cancelled_at timestamptz",
]

# Functions that change in a few places are taken as they stand, and changed there.
NACK_KEYED = (
    "holdfast.nack_keyed(text,bigint[],uuid[],text[],bigint[],text[],smallint[],json)",
    {
        "AND j.state::text = 'leased' AND j.visible_at >= now()\n": (
            "AND j.state::text = 'leased' AND j.visible_at >= now()\n              AND j.cancelled_at IS NULL\n"
        ),
    },
)
REQUEUE = (
    "holdfast.requeue(text,integer,bigint[],text,text[],bigint)",
    {
        "(j.state::text <> 'leased' OR j.visible_at < now())))": (
            "(j.state::text <> 'leased' OR j.visible_at < now())\n"
            "                           AND j.cancelled_at IS NULL))"
        ),
    },
)
# A change that says from when on the job can be had counts; one of its payload does not.
AS_OF = (
    "holdfast.as_of(text,integer,timestamptz)",
    {
        "e.event NOT IN ('updated')": "(e.event <> 'updated' OR e.until IS NOT NULL)",
        "IN ('enqueued', 'unblocked', 'released', 'requeued') AND": (
            "IN ('enqueued', 'unblocked', 'released', 'requeued', 'updated') AND"
        ),
        "IN ('enqueued', 'unblocked', 'released', 'requeued', 'claimed', 'extended')": (
            "IN ('enqueued', 'unblocked', 'released', 'requeued', 'updated', 'claimed', 'extended')"
        ),
    },
)


def changed(db: Connection, name: str, places: dict[str, str]) -> None:
    """Make a function anew as it stands, but with each of these texts, which it has once, by another."""
    text = db.exec_driver_sql(f"SELECT pg_get_functiondef('{name}'::regprocedure)").scalar_one()
    for was, now in places.items():
        assert text.count(was) == 1, (name, was)
        text = text.replace(was, now)
    db.exec_driver_sql(text)


def back(places: dict[str, str]) -> dict[str, str]:
    return {now: was for was, now in places.items()}


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)
    for name, places in (NACK_KEYED, REQUEUE, AS_OF):
        changed(op.get_bind(), name, places)


def downgrade() -> None:
    """The ledger's word stays: an enum can't lose one."""
    for name, places in (NACK_KEYED, REQUEUE, AS_OF):
        changed(op.get_bind(), name, back(places))
    op.execute("ALTER TABLE holdfast.jobs DROP COLUMN cancelled_at")
