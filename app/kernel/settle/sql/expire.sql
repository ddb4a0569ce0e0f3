-- Mark jobs as expired whose time to live has passed, and end cancelled jobs whose leases ran out. Leaves jobs with a
-- valid lease.
--   $1  topic
--   $2  most jobs to mark
-- Answers one row: how many were marked, how many were ended, and `suspects` as in bury.   Index: jobs_expiring.
WITH picked AS MATERIALIZED (
    SELECT ctid AS tid, j.lease_id, j.node, j.state::text AS was, j.cancelled_at IS NOT NULL AS cancelled
    FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.expires_at IS NOT NULL AND j.expires_at <= now()
      AND j.state IN ('ready', 'scheduled', 'blocked', 'leased') AND (j.state <> 'leased' OR j.visible_at < now())
    ORDER BY j.expires_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), done AS (
    UPDATE holdfast.jobs j
    SET state = 'expired', updated_at = clock_timestamp(), lease_id = NULL, node = NULL,
        crashes = j.crashes + (p.was = 'leased')::integer
    FROM picked p WHERE j.ctid = p.tid AND NOT p.cancelled
    RETURNING p.lease_id, p.node, p.was, j.crashes, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes,
              j.tenant
), gone AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid AND p.cancelled
    RETURNING p.lease_id, p.node, p.was, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes, j.tenant
), ended AS (
    SELECT lease_id, node, was, topic_id, seq, deliveries, bytes, tenant, 1 AS expired FROM done
    UNION ALL
    SELECT lease_id, node, was, topic_id, seq, deliveries, bytes, tenant, 0 FROM gone
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, tenant)
    SELECT $1, topic_id, seq, (ARRAY['cancelled', 'expired'])[1 + expired]::holdfast.job_event, deliveries, lease_id, node,
           nullif(tenant, '')
    FROM ended
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, expired, bytes, ttl_lost_to)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'), sum(expired),
           -sum(bytes), max(seq) FILTER (WHERE expired = 1)
    FROM ended HAVING count(*) > 0
)
SELECT count(*) AS expired, (SELECT count(*) FROM gone) AS cancelled,
       count(*) FILTER (WHERE was = 'leased' AND crashes = 2) AS suspects
FROM done
