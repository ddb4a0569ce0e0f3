-- Delete a batch of the jobs of a cluster that are out, for good, those under a good lease too.
--   $1 topic that they are in  $2 topic that they failed in  $3 cluster  $4, $5 behind this place: a time and a seq
--   $6 that went out by then  $7 most jobs to look at
-- Answers one row: deleted; of those, ready and in_flight as counts have them; picked, those that were locked (more than
-- deleted: another verb changed one meanwhile, and the caller runs the statement again from the same place); last_at and
-- last_seq, the place of the last one looked at (NULL: there is nothing more). Locks in the order of seqs.
-- Indexes: jobs_failures, primary key.
WITH looked AS MATERIALIZED (
    SELECT j.failed_at, j.seq FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.failed_in = $2::text AND j.cluster = $3::text AND j.cluster IS NOT NULL
      AND (j.failed_at, j.seq) > ($4::timestamptz, $5::bigint) AND j.failed_at <= $6::timestamptz
    ORDER BY j.failed_at, j.seq LIMIT $7::integer
), picked AS MATERIALIZED (
    SELECT x.* FROM (SELECT o.seq FROM looked o ORDER BY o.seq) l CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.state::text AS was, j.state::text = 'leased' AND j.visible_at >= now() AS held,
               j.lease_id, j.node
        FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq = l.seq AND j.cluster = $3::text
        FOR UPDATE
    ) x
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.was, p.held, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
    SELECT $1, topic_id, seq, 'deleted', deliveries, lease_id, node, 'was ' || was FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, failed, expired, bytes)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'),
           -count(*) FILTER (WHERE was = 'failed'), -count(*) FILTER (WHERE was = 'expired'),
           -coalesce(sum(bytes) FILTER (WHERE was NOT IN ('failed', 'expired')), 0)
    FROM done HAVING count(*) > 0
), last AS (
    SELECT o.failed_at, o.seq FROM looked o ORDER BY o.failed_at DESC, o.seq DESC LIMIT 1
)
SELECT (SELECT count(*) FROM done) AS deleted, (SELECT count(*) FROM done d WHERE d.was = 'ready') AS ready,
       (SELECT count(*) FROM done d WHERE d.held) AS in_flight, (SELECT count(*) FROM picked) AS picked,
       (SELECT l.failed_at FROM last l) AS last_at, (SELECT l.seq FROM last l) AS last_seq
