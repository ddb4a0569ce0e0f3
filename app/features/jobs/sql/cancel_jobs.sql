-- Cancel jobs: one that waits, a lease that has ended included, is gone at once; one under a good lease is marked: the
-- lease goes on, and whatever ends it but an ack ends the job too. A marked job leaves its group, with the note that
-- promote looks for (docs/adr/0033): the group goes on at once. Which group that was stays in left_grp.
--   $1 topic  $2 topic id  $3 seqs, ascending
-- Answers one row: places in $3 (from 1), `gone` and `marked`; `ready`, how many of those that are gone were fresh; and
-- `picked`, those that were locked: the caller runs the statement again for what is in none of the others, as in ack.
-- A job that failed or expired is left, and so is one that is not there.
-- A mark lets the job outlive its time, so that claims, keys and sweeps see to it as to any that has (see expire). It
-- says now(): a lease that was good then has ended at the earliest at that time, so whoever finds it ended finds this
-- in the past.   Index: primary key (see ack).
WITH picked AS MATERIALIZED (
    SELECT r.ord, x.* FROM unnest($3::bigint[]) WITH ORDINALITY AS r(seq, ord)
    CROSS JOIN LATERAL (
        SELECT ctid AS tid, j.state::text AS was, j.state::text = 'leased' AND j.visible_at >= now() AS held,
               j.lease_id, j.node, CASE WHEN j.original_topic IS NULL THEN j.grp END AS grp
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = r.seq
          AND CASE j.state::text WHEN 'failed' THEN false WHEN 'expired' THEN false
                                 WHEN 'leased' THEN j.visible_at >= now() OR j.cancelled_at IS NOT NULL
                                                    OR j.expires_at IS NULL OR j.expires_at > now()
                                 ELSE j.expires_at IS NULL OR j.expires_at > now() END
        FOR UPDATE
    ) x
), gone AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid AND NOT p.held
    RETURNING p.ord, p.was, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, j.tenant, octet_length(j.payload) AS bytes
), marked AS (
    UPDATE holdfast.jobs j
    SET cancelled_at = coalesce(j.cancelled_at, clock_timestamp()), expires_at = least(j.expires_at, now()),
        grp = CASE WHEN p.grp IS NULL THEN j.grp END, left_grp = coalesce(p.grp, j.left_grp)
    FROM picked p WHERE j.ctid = p.tid AND p.held
    RETURNING p.ord, p.grp, j.tenant, j.topic_id, j.seq, j.deliveries, j.lease_id, j.node
), freed AS (
    INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) SELECT topic_id, tenant, grp FROM marked WHERE grp IS NOT NULL
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail, tenant)
    SELECT $1, topic_id, seq, 'cancelled'::holdfast.job_event, deliveries, lease_id, node, NULL, nullif(tenant, '') FROM gone
    UNION ALL
    SELECT $1, topic_id, seq, 'updated', deliveries, lease_id, node, 'to be cancelled', NULL FROM marked
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'), -sum(bytes)
    FROM gone HAVING count(*) > 0
)
SELECT array(SELECT ord FROM gone) AS gone, array(SELECT ord FROM marked) AS marked,
       (SELECT count(*) FROM gone WHERE was = 'ready') AS ready, array(SELECT ord FROM picked) AS picked
