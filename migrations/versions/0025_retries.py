"""Backoff by topic; deliveries that ended with a crash, and those that were given back, by job.

Revision ID: 0025
"""

from alembic import op
from sqlalchemy import Connection

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

UP = [
    # crashes: deliveries that ended by their deadline. refunds: deliveries that holders were given back.
    # original_crashes: those of a dead letter, in the topic that it came from.
    """
    ALTER TABLE holdfast.jobs ADD COLUMN crashes integer NOT NULL DEFAULT 0,
        ADD COLUMN refunds smallint NOT NULL DEFAULT 0, ADD COLUMN original_crashes integer
    """,
    # {kind, base_ms, cap_ms, jitter}; NULL is none.
    "ALTER TABLE holdfast.topics ADD COLUMN backoff json",
    # How long a job waits after its n-th delivery, in ms: nothing overflows, since n stops to count where any base has
    # reached the longest cap.
    """
    CREATE FUNCTION holdfast.backoff_ms(policy json, deliveries integer) RETURNS bigint
    LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
        SELECT (least((policy->>'cap_ms')::float8,
                      (policy->>'base_ms')::float8
                      * CASE policy->>'kind' WHEN 'fixed' THEN 1 WHEN 'linear' THEN deliveries
                                             WHEN 'exponential' THEN 2 ^ least(deliveries - 1, 30) ELSE 0 END)
                * (1 - random() * CASE policy->>'jitter' WHEN 'full' THEN 1 WHEN 'equal' THEN 0.5 ELSE 0 END))::bigint
    $$
    """,
]

# Functions that change in a few places are taken as they stand, and changed there.
NACK_KEYED = {
    "refunds boolean[], OUT done integer[], OUT superseded integer[])": (
        "refunds smallint[], backoff json, OUT done integer[], OUT superseded integer[], OUT refunded integer[], "
        "OUT delays bigint[])"
    ),
    "        fits boolean;\n": "        fits boolean;\n        given_back boolean;\n        delay bigint;\n",
    "        superseded := '{}';\n": (
        "        superseded := '{}';\n        refunded := '{}';\n        delays := '{}';\n"
    ),
    "            job.visible_at := clock_timestamp() + r.delay_ms * interval '1 ms';\n": """\
            given_back := r.refund IS NULL OR job.refunds < r.refund;
            IF given_back AND r.refund IS NOT NULL THEN
                job.refunds := job.refunds + 1;
                refunded := refunded || r.ord::integer;
            END IF;
            delay := coalesce(r.delay_ms, CASE WHEN given_back THEN 0
                                               ELSE holdfast.backoff_ms(backoff, job.deliveries) END, 0);
            job.visible_at := clock_timestamp() + delay * interval '1 ms';
""",
    "job.deliveries := job.deliveries - r.refund::integer;": (
        "job.deliveries := job.deliveries - given_back::integer;"
    ),
    "                    n_scheduled := n_scheduled + 1;\n": (
        "                    n_scheduled := n_scheduled + 1;\n                    delays := delays || delay;\n"
    ),
}
# Who asks as before, with true for a delivery that is given back always.
NACK_KEYED_AS_BEFORE = """
    CREATE OR REPLACE FUNCTION holdfast.nack_keyed(of_topic text, given bigint[], leases uuid[], nodes text[],
        delays_ms bigint[], errors text[], refunds boolean[], OUT done integer[], OUT superseded integer[])
    LANGUAGE sql AS $$
        SELECT n.done, n.superseded
        FROM holdfast.nack_keyed(of_topic, given, leases, nodes, delays_ms, errors,
                                 array(SELECT CASE WHEN NOT r.refund THEN 0::smallint END
                                       FROM unnest(refunds) WITH ORDINALITY AS r(refund, ord) ORDER BY r.ord),
                                 NULL::json) n
    $$
"""
# A lease that has ended, and whose job is updated by its key: that delivery was a crash.
ENQUEUE_KEYED = {
    "                        job.visible_at := job.updated_at;\n": (
        "                        job.visible_at := job.updated_at;\n"
        "                        job.crashes := job.crashes + 1;\n"
    )
}
REQUEUE = {
    "            job.deliveries := 0;\n": """\
            job.deliveries := 0;
            job.crashes := 0;
            job.refunds := 0;
            job.original_crashes := NULL;
"""
}


def changed(db: Connection, name: str, places: dict[str, str]) -> None:
    """Make a function anew as it stands, but with each of these texts, which it has once, by another."""
    [text] = db.exec_driver_sql(
        "SELECT pg_get_functiondef(p.oid) FROM pg_proc p "
        f"WHERE p.pronamespace = 'holdfast'::regnamespace AND p.proname = '{name}'"
    ).scalars()
    for was, now in places.items():
        assert text.count(was) == 1, (name, was)
        text = text.replace(was, now)
    db.exec_driver_sql(text)


def back(places: dict[str, str]) -> dict[str, str]:
    return {now: was for was, now in places.items()}


def upgrade() -> None:
    db = op.get_bind()
    for statement in UP:
        op.execute(statement)
    changed(db, "nack_keyed", NACK_KEYED)
    op.execute(NACK_KEYED_AS_BEFORE)
    changed(db, "enqueue_keyed", ENQUEUE_KEYED)
    changed(db, "requeue", REQUEUE)


def downgrade() -> None:
    db = op.get_bind()
    changed(db, "requeue", back(REQUEUE))
    changed(db, "enqueue_keyed", back(ENQUEUE_KEYED))
    op.execute("DROP FUNCTION holdfast.nack_keyed(text, bigint[], uuid[], text[], bigint[], text[], boolean[])")
    changed(db, "nack_keyed", back(NACK_KEYED))
    op.execute("DROP FUNCTION holdfast.nack_keyed(text, bigint[], uuid[], text[], bigint[], text[], smallint[], json)")
    op.execute("DROP FUNCTION holdfast.backoff_ms")
    op.execute("ALTER TABLE holdfast.topics DROP COLUMN backoff")
    op.execute("ALTER TABLE holdfast.jobs DROP COLUMN crashes, DROP COLUMN refunds, DROP COLUMN original_crashes")
