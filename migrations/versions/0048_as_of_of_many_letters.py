"""What a queue looked like is told of one with many dead letters, too.

Revision ID: 0048
"""

from alembic import op
from sqlalchemy import Connection

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None

NAME = "holdfast.as_of(text,integer,timestamptz)"
# Whether a dead letter has gone from its topic by then was asked for each one by a look at all of them: more than
# 25 s of 20,000.
# Of several that came of one job, the last one answers for all.
OF_EACH = """        ), own AS (
            SELECT p.seq, p.since,
                   CASE WHEN p.state = 'dead_lettered' AND EXISTS (
                            SELECT FROM placed x
                            WHERE x.topic_id = letters_id AND x.state = 'gone'
                              AND x.came = 'from ' || of_topic || ' ' || p.seq AND x.came_at >= p.at)
                        THEN 'gone' ELSE p.state END AS state
            FROM placed p WHERE p.topic_id = of_topic_id
"""
AT_ONCE = """        ), away AS MATERIALIZED (
            SELECT x.came, max(x.came_at) AS came_at FROM placed x
            WHERE x.topic_id = letters_id AND x.state = 'gone' GROUP BY x.came
        ), own AS (
            SELECT p.seq, p.since,
                   CASE WHEN p.state = 'dead_lettered' AND a.came_at >= p.at THEN 'gone' ELSE p.state END AS state
            FROM placed p LEFT JOIN away a ON a.came = 'from ' || of_topic || ' ' || p.seq
            WHERE p.topic_id = of_topic_id
"""


def upgrade() -> None:
    change(op.get_bind(), OF_EACH, AT_ONCE)


def downgrade() -> None:
    change(op.get_bind(), AT_ONCE, OF_EACH)


def change(db: Connection, was: str, now: str) -> None:
    """Make the function anew as it stands, but for one part."""
    body = db.exec_driver_sql(f"SELECT pg_get_functiondef('{NAME}'::regprocedure)").scalar_one()
    assert body.count(was) == 1, NAME
    db.exec_driver_sql(body.replace(was, now))
