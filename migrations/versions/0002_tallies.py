"""Counts of a topic's jobs, as rows that statements add and nobody updates.

Revision ID: 0002
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

UP = [
    # Each statement that moves jobs adds one row with what it changed; a topic's counts are the sums. They are folded
    # into one row from time to time. Nobody waits for anybody, and what is dead lies below the ids that are read.
    """
    CREATE TABLE holdfast.tallies (
        id bigint GENERATED ALWAYS AS IDENTITY,
        ready bigint NOT NULL DEFAULT 0,
        scheduled bigint NOT NULL DEFAULT 0,
        blocked bigint NOT NULL DEFAULT 0,
        leased bigint NOT NULL DEFAULT 0,
        dead_lettered bigint NOT NULL DEFAULT 0,
        bytes bigint NOT NULL DEFAULT 0,
        topic_id integer NOT NULL,
        PRIMARY KEY (topic_id, id)
    ) WITH (
        autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_threshold = -1,
        autovacuum_vacuum_cost_delay = 0
    )
    """,
    """
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes, dead_lettered)
    SELECT t.id, coalesce(j.ready, 0), coalesce(j.scheduled, 0), coalesce(j.blocked, 0), coalesce(j.leased, 0),
           coalesce(j.bytes, 0), coalesce(s.dead_lettered, 0)
    FROM holdfast.topics t
    LEFT JOIN (
        SELECT topic, count(*) FILTER (WHERE state = 'ready') AS ready,
               count(*) FILTER (WHERE state = 'scheduled') AS scheduled,
               count(*) FILTER (WHERE state = 'blocked') AS blocked,
               count(*) FILTER (WHERE state = 'leased') AS leased, sum(octet_length(payload)) AS bytes
        FROM holdfast.jobs WHERE state NOT IN ('failed', 'expired') GROUP BY topic
    ) j ON j.topic = t.name
    LEFT JOIN holdfast.topic_stats s ON s.topic_id = t.id
    """,
    "DROP TABLE holdfast.topic_stats",
]

DOWN = [
    "CREATE TABLE holdfast.topic_stats (topic_id integer PRIMARY KEY, dead_lettered bigint NOT NULL DEFAULT 0)",
    """
    INSERT INTO holdfast.topic_stats
    SELECT topic_id, sum(dead_lettered) FROM holdfast.tallies GROUP BY topic_id
    """,
    "DROP TABLE holdfast.tallies",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
