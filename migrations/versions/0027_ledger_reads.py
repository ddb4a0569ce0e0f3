"""The ledger can be read: what happened to a job, and how fast a topic's jobs went lately.

Revision ID: 0027
"""

from alembic import op

revision = "0027"
down_revision = "0026"
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
    # The last event of each job up to then says where it was. Jobs from before the ledger's first day, to which nothing
    # has happened in its time, are where they are now.
    """
    CREATE FUNCTION holdfast.as_of(of_topic text, of_topic_id integer, instant timestamptz,
                                   OUT ready bigint, OUT in_flight bigint, OUT scheduled bigint, OUT blocked bigint,
                                   OUT failed bigint, OUT expired bigint, OUT dead bigint, OUT oldest timestamptz)
    LANGUAGE plpgsql STABLE
    SET enable_bitmapscan TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'on'
    SET plan_cache_mode TO 'force_custom_plan'
    SET work_mem TO '64MB'
    AS $$
    DECLARE
        known_from bigint;
    BEGIN
        SELECT min(e.seq) INTO known_from FROM holdfast.lease_events e
        WHERE e.topic_id = of_topic_id AND e.event = 'enqueued';
        WITH last AS (
            SELECT DISTINCT ON (e.seq) e.seq, e.event, e.until, coalesce(e.until, e.at) AS since,
                   coalesce(e.detail, '') AS detail
            FROM holdfast.lease_events e
            WHERE e.topic_id = of_topic_id AND e.at <= instant AND e.event NOT IN ('updated')
            ORDER BY e.seq, e.at DESC, e.tx DESC
        ), older AS (
            SELECT j.state, j.visible_at FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.topic_id = of_topic_id AND j.created_at <= instant
              AND (known_from IS NULL OR j.seq < known_from) AND j.seq NOT IN (SELECT l.seq FROM last l)
        ), job AS (
            SELECT CASE WHEN l.event = 'requeued' AND starts_with(l.detail, 'to ') THEN 'gone'
                        WHEN (l.event = 'enqueued' AND l.detail LIKE '%blocked')
                             OR (l.event = 'requeued' AND l.until IS NULL) THEN 'blocked'
                        WHEN l.event IN ('claimed', 'extended') AND l.until >= instant THEN 'leased'
                        WHEN l.event IN ('enqueued', 'unblocked', 'released', 'requeued') AND l.since > instant
                            THEN 'scheduled'
                        WHEN l.event IN ('enqueued', 'unblocked', 'released', 'requeued', 'claimed', 'extended')
                            THEN 'ready'
                        WHEN l.event IN ('failed', 'expired', 'dead_lettered') THEN l.event::text
                        ELSE 'gone' END AS state, l.since
            FROM last l
            UNION ALL
            SELECT CASE WHEN o.state IN ('failed', 'expired', 'blocked') THEN o.state::text
                        WHEN o.visible_at > instant AND o.state <> 'leased' THEN 'scheduled' ELSE 'ready' END,
                   least(o.visible_at, instant)
            FROM older o
        )
        SELECT count(*) FILTER (WHERE j.state = 'ready'), count(*) FILTER (WHERE j.state = 'leased'),
               count(*) FILTER (WHERE j.state = 'scheduled'), count(*) FILTER (WHERE j.state = 'blocked'),
               count(*) FILTER (WHERE j.state = 'failed'), count(*) FILTER (WHERE j.state = 'expired'),
               count(*) FILTER (WHERE j.state = 'dead_lettered'), min(j.since) FILTER (WHERE j.state = 'ready')
        INTO ready, in_flight, scheduled, blocked, failed, expired, dead, oldest FROM job j;
    END $$
    """,
]

DOWN = [
    "DROP FUNCTION holdfast.as_of(text, integer, timestamptz)",
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
