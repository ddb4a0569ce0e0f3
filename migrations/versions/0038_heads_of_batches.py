"""A repeated batch of jobs answers the head that its first answer had.

Revision ID: 0038
"""

from alembic import op
from sqlalchemy import Connection

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

DEDUPED = (
    "holdfast.enqueue_deduped(text,integer,oid,bytea[],text[],text[],json[],text[],smallint[],bigint[],timestamptz[],"
    "bigint[],integer[],text[],text[],bigint,boolean,integer,text[],text[],bigint,integer[],text[],bigint)"
)
PLACES = {
    "        place integer := 0;\n": "        place integer := 0;\n        newest bigint;\n",
    "        place := 0;\n        FOR i IN 1..cardinality(sizes) LOOP\n": (
        "        place := 0;\n"
        "        newest := head_seq;\n"
        "        FOR i IN 1..cardinality(sizes) LOOP\n"
        "            head_seq := newest;\n"
    ),
    "                SELECT k.seqs INTO STRICT seqs FROM holdfast.idempotency k\n": (
        "                SELECT k.seqs, coalesce(k.head_seq, 0) INTO STRICT seqs, head_seq\n"
        "                FROM holdfast.idempotency k\n"
    ),
    "                    seqs = enqueue_deduped.seqs\n": (
        "                    seqs = enqueue_deduped.seqs, head_seq = newest\n"
    ),
}


def changed(db: Connection, name: str, places: dict[str, str]) -> None:
    """Make a function anew as it stands, but with each of these texts, which it has once, by another."""
    text = db.exec_driver_sql(f"SELECT pg_get_functiondef('{name}'::regprocedure)").scalar_one()
    for was, now in places.items():
        assert text.count(was) == 1, (name, was)
        text = text.replace(was, now)
    db.exec_driver_sql(text)


def upgrade() -> None:
    # Of a queue's batch. NULL: of a log's, whose last seq it is; or from before this, and forgotten.
    op.execute("ALTER TABLE holdfast.idempotency ADD COLUMN head_seq bigint")
    changed(op.get_bind(), DEDUPED, PLACES)


def downgrade() -> None:
    changed(op.get_bind(), DEDUPED, {now: was for was, now in PLACES.items()})
    op.execute("ALTER TABLE holdfast.idempotency DROP COLUMN head_seq")
