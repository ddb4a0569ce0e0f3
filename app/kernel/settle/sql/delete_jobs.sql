-- Delete a batch of a queue's waiting jobs, for good. One under a good lease is marked as in cancel_jobs, once, and
-- leaves its group.
--   $1 topic  $2 after this seq  $3 up to this one  $4 only those with this tag, or NULL  $5 only those whose tag starts
--   with this, or NULL  $6 most jobs to look at
-- Answers one row: deleted; ready, how many of them were fresh; marked; picked, those that were locked (more than deleted
-- and marked: another verb changed one meanwhile, and the caller runs the statement again from the same place); last_seq
-- looked at (NULL: there is nothing more).
-- A job whose lease has ended waits. Index: primary key.
WITH looked AS MATERIALIZED (
    SELECT j.seq FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq > $2::bigint AND j.seq <= $3::bigint
    ORDER BY j.seq LIMIT $6::integer
), picked AS MATERIALIZED (
    SELECT x.* FROM looked l CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.state::text AS was, j.state::text = 'leased' AND j.visible_at >= now() AS held,
               CASE WHEN j.original_topic IS NULL THEN j.grp END AS grp
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = l.seq
          AND (j.state::text IN ('ready', 'scheduled', 'blocked')
               OR (j.state::text = 'leased' AND (j.visible_at < now() OR j.cancelled_at IS NULL)))
          AND ($4::text IS NULL OR j.tag = $4::text) AND ($5::text IS NULL OR starts_with(j.tag, $5::text))
        FOR UPDATE
    ) x
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid AND NOT p.held
    RETURNING p.was, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
), marked AS (
    UPDATE holdfast.jobs j
    SET cancelled_at = clock_timestamp(), expires_at = least(j.expires_at, now()),
        grp = CASE WHEN p.grp IS NULL THEN j.grp END, left_grp = p.grp
    FROM picked p WHERE j.ctid = p.tid AND p.held
    RETURNING p.grp, j.tenant, j.topic_id, j.seq, j.deliveries, j.lease_id, j.node
), freed AS (
    INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) SELECT topic_id, tenant, grp FROM marked WHERE grp IS NOT NULL
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
    SELECT $1, topic_id, seq, 'deleted'::holdfast.job_event, deliveries, NULL::uuid, NULL::text, 'was ' || was FROM done
    UNION ALL
    SELECT $1, topic_id, seq, 'updated', deliveries, lease_id, node, 'to be cancelled' FROM marked
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'), -sum(bytes)
    FROM done HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM done) AS deleted, (SELECT count(*) FROM done d WHERE d.was = 'ready') AS ready,
       (SELECT count(*) FROM marked) AS marked, (SELECT count(*) FROM picked) AS picked, (SELECT max(l.seq) FROM looked l) AS last_seq
