"""An arrival in the ledger says which group and which limit the job has.

Revision ID: 0044
"""

from alembic import op
from sqlalchemy import Connection, text

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

# Of events by which a job comes: enqueued, requeued. NULL for none, and of all other events: that takes no room. So the
# ledger shows by itself whether groups kept their order and limits held, when the jobs are gone (ADR 0051).
COLUMNS = """
    ALTER TABLE holdfast.lease_events ADD COLUMN grp text COLLATE "C", ADD COLUMN max_deliveries integer
"""
# By function: parts of its text, each of which it has once, and what stands there now.
PATCHES = {
    "enqueue_plain": [
        (
            "event, deliveries, node, tenant, until)\n            SELECT $1, $2, r.seq, 'enqueued', 0,",
            "event, deliveries, max_deliveries, node, tenant, until)\n"
            "            SELECT $1, $2, r.seq, 'enqueued', 0, r.max_deliveries,",
        )
    ],
    "enqueue_keyed": [
        (
            "event, deliveries, node, tenant, until, detail)\n"
            "                    VALUES (of_topic, of_id, drawn[r.ord], 'enqueued', 0,",
            "event, deliveries, grp, max_deliveries, node, tenant,\n"
            "                                                       until, detail)\n"
            "                    VALUES (of_topic, of_id, drawn[r.ord], 'enqueued', 0, r.grp, r.most,",
        )
    ],
    "take_inbox": [
        (
            "RETURNING seq, state, visible_at, producer, tenant, octet_length(payload) AS size",
            "RETURNING seq, state, visible_at, producer, tenant, max_deliveries, octet_length(payload) AS size",
        ),
        (
            "event, deliveries, node, tenant,\n                                                       until)\n"
            "                    SELECT g.topic, t.id, j.seq, 'enqueued', 0, j.producer,",
            "event, deliveries, max_deliveries, node,\n"
            "                                                       tenant, until)\n"
            "                    SELECT g.topic, t.id, j.seq, 'enqueued', 0, j.max_deliveries, j.producer,",
        ),
    ],
    "requeue": [
        (
            "event, deliveries, until, detail)\n            VALUES (job.topic, job.topic_id, job.seq, 'requeued', 0,",
            "event, deliveries, grp, max_deliveries, tenant, until, detail)\n"
            "            VALUES (job.topic, job.topic_id, job.seq, 'requeued', 0, job.grp, job.max_deliveries,\n"
            "                    nullif(job.tenant, ''),",
        )
    ],
}


def upgrade() -> None:
    op.execute(COLUMNS)
    for name, pairs in PATCHES.items():
        patch(op.get_bind(), name, pairs)


def downgrade() -> None:
    for name, pairs in PATCHES.items():
        patch(op.get_bind(), name, [(after, before) for before, after in pairs])
    op.execute("ALTER TABLE holdfast.lease_events DROP COLUMN max_deliveries, DROP COLUMN grp")


def patch(db: Connection, name: str, pairs: list[tuple[str, str]]) -> None:
    """Replace parts of the text of the one function of the name that writes events."""
    found = db.execute(
        text(
            "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace "
            "AND p.proname = :name AND position('INSERT INTO holdfast.lease_events' IN p.prosrc) > 0"
        ),
        {"name": name},
    )
    body: str = found.scalar_one()
    for before, after in pairs:
        assert body.count(before) == 1, f"{name} has {body.count(before)} of {before!r}"
        body = body.replace(before, after)
    op.execute(text(body.replace(":", "\\:")))
