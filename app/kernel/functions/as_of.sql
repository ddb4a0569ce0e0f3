-- How many jobs of each state a queue had at an instant. The last event of a job up to then gives its state. For a job
-- from before events are kept, the first event after the instant tells the state before; a job without events is in its
-- present state. A dead letter counts until it has left the topic that it went to; of several dead letters of one job,
-- the last one counts for all.
--
-- Reads the events of all topics from the first stored event, or the topic's beginning, to the instant, and up to now
-- if the topic is older than its events.
CREATE OR REPLACE FUNCTION holdfast.as_of(
    of_topic text, of_topic_id integer, instant timestamptz, OUT ready bigint, OUT in_flight bigint,
    OUT scheduled bigint, OUT blocked bigint, OUT failed bigint, OUT expired bigint, OUT dead bigint,
    OUT oldest timestamptz
)
LANGUAGE plpgsql STABLE
SET enable_bitmapscan = on SET enable_seqscan = off SET enable_hashjoin = on SET plan_cache_mode = force_custom_plan
SET work_mem = '64MB' SET max_parallel_workers_per_gather = 0
AS $$
DECLARE
    since timestamptz;
    older boolean;    -- whether it may have jobs from before `since`
    letters text;     -- its dead-letter topic
    letters_id integer;
BEGIN
    SELECT greatest(f.first_at, t.created_at), t.created_at < f.first_at, d.name, d.id
    INTO since, older, letters, letters_id
    FROM holdfast.events_from(of_topic_id) AS f(first_at)
    LEFT JOIN holdfast.topics t ON t.name = of_topic AND t.id = of_topic_id
    LEFT JOIN holdfast.topics d ON d.name = coalesce(t.dead_letter, t.name || '.dlq');
    IF older AND instant < since THEN
        RETURN;
    END IF;
    WITH told AS MATERIALIZED (
        SELECT DISTINCT ON (e.topic_id, e.seq) e.topic_id, e.seq, e.event, e.at, e.until,
               coalesce(e.until, e.at) AS since, coalesce(e.detail, '') AS detail,
               bool_or(e.event = 'updated' AND e.until IS NULL) OVER job AS cancelled,
               max(e.at) FILTER (WHERE e.event = 'enqueued') OVER job AS came_at,
               max(e.detail) FILTER (WHERE e.event = 'enqueued') OVER job AS came
        FROM holdfast.lease_events e
        WHERE e.topic_id IN (of_topic_id, letters_id) AND e.at >= since AND e.at <= instant
          AND (e.event <> 'updated' OR e.until IS NOT NULL OR e.detail = 'to be cancelled')
        WINDOW job AS (PARTITION BY e.topic_id, e.seq)
        ORDER BY e.topic_id, e.seq, e.event = 'updated' AND e.until IS NULL, e.at DESC, e.tx DESC
    ), placed AS MATERIALIZED (
        SELECT l.topic_id, l.seq, l.at, l.since, l.came_at, l.came,
               CASE WHEN l.event = 'requeued' AND starts_with(l.detail, 'to ') THEN 'gone'
                    WHEN (l.event = 'enqueued' AND l.detail LIKE '%blocked')
                         OR (l.event = 'requeued' AND l.until IS NULL) THEN 'blocked'
                    WHEN l.event IN ('claimed', 'extended') AND l.until >= instant THEN 'leased'
                    WHEN l.event IN ('claimed', 'extended') AND l.cancelled THEN 'gone'
                    WHEN l.event IN ('enqueued', 'unblocked', 'released', 'requeued', 'updated') AND l.since > instant
                        THEN 'scheduled'
                    WHEN l.event IN ('enqueued', 'unblocked', 'released', 'requeued', 'updated', 'claimed', 'extended')
                        THEN 'ready'
                    WHEN l.event IN ('failed', 'expired', 'dead_lettered') THEN l.event::text
                    ELSE 'gone' END AS state
        FROM told l
        WHERE NOT (l.event = 'updated' AND l.until IS NULL)  -- the next event tells where it was
    ), away AS MATERIALIZED (
        SELECT x.came, max(x.came_at) AS came_at FROM placed x
        WHERE x.topic_id = letters_id AND x.state = 'gone' GROUP BY x.came
    ), own AS (
        SELECT p.seq, p.since,
               CASE WHEN p.state = 'dead_lettered' AND a.came_at >= p.at THEN 'gone' ELSE p.state END AS state
        FROM placed p LEFT JOIN away a ON a.came = 'from ' || of_topic || ' ' || p.seq
        WHERE p.topic_id = of_topic_id
    ), next AS MATERIALIZED (
        SELECT DISTINCT ON (e.seq) e.seq, e.event, e.lease_id IS NOT NULL AS held, coalesce(e.detail, '') AS detail
        FROM holdfast.lease_events e
        WHERE older AND e.topic_id = of_topic_id AND e.at > instant AND e.at >= since
          AND (e.event <> 'updated' OR e.until IS NOT NULL OR e.detail = 'to be cancelled')
          AND NOT EXISTS (SELECT FROM own o WHERE o.seq = e.seq)
        ORDER BY e.seq, e.at, e.tx
    ), still AS (
        SELECT j.state::text AS state, j.visible_at, j.cancelled_at IS NOT NULL AS cancelled
        FROM holdfast.jobs j
        WHERE older AND j.topic = of_topic AND j.topic_id = of_topic_id AND j.created_at < since
          AND NOT EXISTS (SELECT FROM own o WHERE o.seq = j.seq)
          AND NOT EXISTS (SELECT FROM next n WHERE n.seq = j.seq)
    ), job AS (
        SELECT o.state, o.since FROM own o
        UNION ALL
        SELECT CASE WHEN n.event = 'enqueued' THEN 'gone'
                    WHEN n.event = 'requeued' AND starts_with(n.detail, 'from ') THEN 'dead_lettered'
                    WHEN n.event IN ('requeued', 'deleted') AND starts_with(n.detail, 'was ')
                         AND n.detail <> 'was leased' THEN substr(n.detail, 5)
                    WHEN n.event = 'unblocked' THEN 'blocked'
                    WHEN n.event IN ('extended', 'acked', 'released')
                         OR (n.event = 'updated' AND n.detail = 'to be cancelled')
                         OR (n.event IN ('failed', 'expired', 'dead_lettered', 'deleted', 'superseded', 'cancelled')
                             AND n.held) THEN 'leased'
                    ELSE 'ready' END, NULL
        FROM next n
        UNION ALL
        SELECT CASE WHEN s.state NOT IN ('ready', 'scheduled', 'leased') THEN s.state
                    WHEN s.state = 'leased' AND s.visible_at >= instant THEN 'leased'
                    WHEN s.state = 'leased' AND s.cancelled THEN 'gone'
                    WHEN s.visible_at > instant THEN 'scheduled' ELSE 'ready' END, s.visible_at
        FROM still s
        UNION ALL
        SELECT 'dead_lettered', NULL FROM holdfast.jobs j
        WHERE older AND j.topic = letters AND j.topic_id = letters_id AND j.dlq_moved_at < since
          AND j.original_topic = of_topic AND NOT EXISTS (SELECT FROM own o WHERE o.seq = j.original_seq)
    )
    SELECT count(*) FILTER (WHERE j.state = 'ready'), count(*) FILTER (WHERE j.state = 'leased'),
           count(*) FILTER (WHERE j.state = 'scheduled'), count(*) FILTER (WHERE j.state = 'blocked'),
           count(*) FILTER (WHERE j.state = 'failed'), count(*) FILTER (WHERE j.state = 'expired'),
           count(*) FILTER (WHERE j.state = 'dead_lettered'), min(j.since) FILTER (WHERE j.state = 'ready')
    INTO ready, in_flight, scheduled, blocked, failed, expired, dead, oldest FROM job j;
END $$;

-- The jobs in one state that a queue had at an instant, counted as in as_of; tests/api/test_as_of.py compares the two.
-- `began` is when the job came into its state, NULL if no stored event says so.
CREATE OR REPLACE FUNCTION holdfast.jobs_as_of(
    of_topic text, of_topic_id integer, instant timestamptz, wanted text, behind bigint, most integer
) RETURNS TABLE (seq bigint, state text, began timestamptz, deliveries integer, until timestamptz, node text)
LANGUAGE plpgsql STABLE
SET enable_bitmapscan = on SET enable_seqscan = off SET enable_hashjoin = on SET plan_cache_mode = force_custom_plan
SET work_mem = '64MB' SET max_parallel_workers_per_gather = 0
AS $$
#variable_conflict use_column
DECLARE
    first_at timestamptz;
    older boolean;    -- whether it may have jobs from before `since`
    letters text;     -- its dead-letter topic
    letters_id integer;
BEGIN
    SELECT greatest(f.at, t.created_at), t.created_at < f.at, d.name, d.id
    INTO first_at, older, letters, letters_id
    FROM holdfast.events_from(of_topic_id) AS f(at)
    LEFT JOIN holdfast.topics t ON t.name = of_topic AND t.id = of_topic_id
    LEFT JOIN holdfast.topics d ON d.name = coalesce(t.dead_letter, t.name || '.dlq');
    IF older AND instant < first_at THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH told AS MATERIALIZED (
        SELECT DISTINCT ON (e.topic_id, e.seq) e.topic_id, e.seq, e.event, e.at, e.until, e.deliveries, e.node,
               coalesce(e.until, e.at) AS since, coalesce(e.detail, '') AS detail,
               bool_or(e.event = 'updated' AND e.until IS NULL) OVER job AS cancelled,
               max(e.at) FILTER (WHERE e.event = 'claimed') OVER job AS claimed_at,
               max(e.at) FILTER (WHERE e.event = 'enqueued') OVER job AS came_at,
               max(e.detail) FILTER (WHERE e.event = 'enqueued') OVER job AS came
        FROM holdfast.lease_events e
        WHERE e.topic_id IN (of_topic_id, letters_id) AND e.at >= first_at AND e.at <= instant
          AND (e.event <> 'updated' OR e.until IS NOT NULL OR e.detail = 'to be cancelled')
          AND (e.seq > behind OR e.topic_id = letters_id)
        WINDOW job AS (PARTITION BY e.topic_id, e.seq)
        ORDER BY e.topic_id, e.seq, e.event = 'updated' AND e.until IS NULL, e.at DESC, e.tx DESC
    ), placed AS MATERIALIZED (
        SELECT l.topic_id, l.seq, l.at, l.since, l.claimed_at, l.came_at, l.came, l.deliveries, l.until, l.node,
               CASE WHEN l.event = 'requeued' AND starts_with(l.detail, 'to ') THEN 'gone'
                    WHEN (l.event = 'enqueued' AND l.detail LIKE '%blocked')
                         OR (l.event = 'requeued' AND l.until IS NULL) THEN 'blocked'
                    WHEN l.event IN ('claimed', 'extended') AND l.until >= instant THEN 'leased'
                    WHEN l.event IN ('claimed', 'extended') AND l.cancelled THEN 'gone'
                    WHEN l.event IN ('enqueued', 'unblocked', 'released', 'requeued', 'updated')
                         AND l.since > instant THEN 'scheduled'
                    WHEN l.event IN ('enqueued', 'unblocked', 'released', 'requeued', 'updated', 'claimed',
                                     'extended') THEN 'ready'
                    WHEN l.event IN ('failed', 'expired', 'dead_lettered') THEN l.event::text
                    ELSE 'gone' END AS state
        FROM told l
        WHERE NOT (l.event = 'updated' AND l.until IS NULL)  -- the next event tells where it was
    ), away AS MATERIALIZED (
        SELECT x.came, max(x.came_at) AS came_at FROM placed x
        WHERE x.topic_id = letters_id AND x.state = 'gone' GROUP BY x.came
    ), own AS (
        SELECT p.seq, p.at, p.since, p.claimed_at, p.deliveries, p.until, p.node,
               CASE WHEN p.state = 'dead_lettered' AND a.came_at >= p.at THEN 'gone' ELSE p.state END AS state
        FROM placed p LEFT JOIN away a ON a.came = 'from ' || of_topic || ' ' || p.seq
        WHERE p.topic_id = of_topic_id
    ), next AS MATERIALIZED (
        SELECT DISTINCT ON (e.seq) e.seq, e.event, e.lease_id IS NOT NULL AS held, coalesce(e.detail, '') AS detail,
               e.deliveries, e.node
        FROM holdfast.lease_events e
        WHERE older AND e.topic_id = of_topic_id AND e.at > instant AND e.at >= first_at AND e.seq > behind
          AND (e.event <> 'updated' OR e.until IS NOT NULL OR e.detail = 'to be cancelled')
          AND NOT EXISTS (SELECT FROM own o WHERE o.seq = e.seq)
        ORDER BY e.seq, e.at, e.tx
    ), still AS (
        SELECT j.seq, j.state::text AS state, j.visible_at, j.cancelled_at IS NOT NULL AS cancelled, j.deliveries,
               j.leased_at, j.node
        FROM holdfast.jobs j
        WHERE older AND j.topic = of_topic AND j.topic_id = of_topic_id AND j.created_at < first_at
          AND j.seq > behind
          AND NOT EXISTS (SELECT FROM own o WHERE o.seq = j.seq)
          AND NOT EXISTS (SELECT FROM next n WHERE n.seq = j.seq)
    ), job AS (
        SELECT o.seq, o.state,
               CASE WHEN o.state = 'leased' THEN coalesce(o.claimed_at, o.at)
                    WHEN o.state = 'ready' THEN greatest(o.at, o.since) ELSE o.at END AS began,
               o.deliveries, o.until, o.node
        FROM own o
        UNION ALL
        SELECT n.seq,
               CASE WHEN n.event = 'enqueued' THEN 'gone'
                    WHEN n.event = 'requeued' AND starts_with(n.detail, 'from ') THEN 'dead_lettered'
                    WHEN n.event IN ('requeued', 'deleted') AND starts_with(n.detail, 'was ')
                         AND n.detail <> 'was leased' THEN substr(n.detail, 5)
                    WHEN n.event = 'unblocked' THEN 'blocked'
                    WHEN n.event IN ('extended', 'acked', 'released')
                         OR (n.event = 'updated' AND n.detail = 'to be cancelled')
                         OR (n.event IN ('failed', 'expired', 'dead_lettered', 'deleted', 'superseded', 'cancelled')
                             AND n.held) THEN 'leased'
                    ELSE 'ready' END, NULL,
               CASE WHEN n.event = 'claimed' THEN n.deliveries - 1
                    WHEN n.event NOT IN ('requeued', 'released') THEN n.deliveries END, NULL, n.node
        FROM next n
        UNION ALL
        SELECT s.seq,
               CASE WHEN s.state NOT IN ('ready', 'scheduled', 'leased') THEN s.state
                    WHEN s.state = 'leased' AND s.visible_at >= instant THEN 'leased'
                    WHEN s.state = 'leased' AND s.cancelled THEN 'gone'
                    WHEN s.visible_at > instant THEN 'scheduled' ELSE 'ready' END,
               CASE WHEN s.state = 'leased' AND s.visible_at >= instant THEN s.leased_at END,
               s.deliveries, s.visible_at, s.node
        FROM still s
        UNION ALL
        SELECT j.original_seq, 'dead_lettered', j.dlq_moved_at, j.original_deliveries, NULL, NULL
        FROM holdfast.jobs j
        WHERE older AND j.topic = letters AND j.topic_id = letters_id AND j.dlq_moved_at < first_at
          AND j.original_topic = of_topic AND j.original_seq > behind
          AND NOT EXISTS (SELECT FROM own o WHERE o.seq = j.original_seq)
    )
    SELECT j.seq, j.state, j.began, j.deliveries,
           CASE WHEN j.state IN ('leased', 'scheduled') THEN j.until END,
           CASE WHEN j.state = 'leased' THEN j.node END
    FROM job j WHERE j.state <> 'gone' AND (wanted IS NULL OR j.state = wanted)
    ORDER BY j.seq LIMIT most;
END $$;
