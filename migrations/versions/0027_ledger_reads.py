"""The ledger can be read: what happened to a job, and how fast a topic's jobs went lately.

Revision ID: 0027
"""

from alembic import op

revision = "0027"
down_revision = "0018"
branch_labels = None
depends_on = None

# Rows come in the order of their times, and a topic's seqs rise with them, so a BRIN says enough, and costs an insert
# a twentieth of what a B-tree on (topic_id, seq) does. A bloom filter rather than a range of seqs: topics are mixed.
UP = [
    """
    CREATE INDEX lease_events_read ON holdfast.lease_events USING brin (at, seq int8_bloom_ops)
        WITH (pages_per_range = 64, autosummarize = on)
    """,
    # A BRIN is read by a bitmap scan, which the pools' sessions have off; and a plan for the days that are asked for is
    # worth more than one that was made before.
    """
    CREATE FUNCTION holdfast.job_events(of_topic_id integer, of_seq bigint, since timestamptz, most integer)
    RETURNS SETOF holdfast.lease_events
    LANGUAGE plpgsql STABLE
    SET enable_bitmapscan TO 'on'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
    BEGIN
        RETURN QUERY
        SELECT e.* FROM holdfast.lease_events e
        WHERE e.topic_id = of_topic_id AND e.seq = of_seq AND e.at >= since
        ORDER BY e.at LIMIT most;
    END $$
    """,
    """
    CREATE FUNCTION holdfast.recent_events(of_topic_id integer, seconds double precision,
                                           OUT claimed bigint, OUT acked bigint, OUT enqueued bigint,
                                           OUT first_claim timestamptz, OUT last_claim timestamptz)
    LANGUAGE plpgsql STABLE
    SET enable_bitmapscan TO 'on'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
    BEGIN
        SELECT count(*) FILTER (WHERE e.event = 'claimed'), count(*) FILTER (WHERE e.event = 'acked'),
               count(*) FILTER (WHERE e.event = 'enqueued'), min(e.at) FILTER (WHERE e.event = 'claimed'),
               max(e.at) FILTER (WHERE e.event = 'claimed')
        INTO claimed, acked, enqueued, first_claim, last_claim
        FROM holdfast.lease_events e
        WHERE e.topic_id = of_topic_id AND e.at > now() - seconds * interval '1 second';
    END $$
    """,
]

DOWN = [
    "DROP FUNCTION holdfast.recent_events(integer, double precision)",
    "DROP FUNCTION holdfast.job_events(integer, bigint, timestamptz, integer)",
    "DROP INDEX holdfast.lease_events_read",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
