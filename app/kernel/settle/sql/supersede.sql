-- End jobs whose lease ended in silence while a newer one of their key waits; or the one that waits, where it is older.
--   $1 topic  behind this lease:  $2 tenant  $3 key  $4 seq  $5 most leases to look at
--   $6 whether deliveries run out here  $7 the topic's max_deliveries, 0 for no end: who has none left is on its way out
-- Answers one row: how many ended, and the last lease looked at (NULL: there are no more).
-- Waits for nobody: what is locked is left for the next time.   Indexes: jobs_keyed, jobs_pending_key.
WITH looked AS MATERIALIZED (
    SELECT j.tenant, j.key, j.seq FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.state = 'leased' AND j.key IS NOT NULL AND (j.tenant, j.key, j.seq) > ($2, $3, $4::bigint)
    ORDER BY j.tenant, j.key, j.seq LIMIT $5::integer
), picked AS MATERIALIZED (
    SELECT CASE WHEN w.updated_at >= l.updated_at THEN l.tid ELSE w.tid END AS tid,
           CASE WHEN w.updated_at >= l.updated_at THEN w.seq ELSE l.seq END AS by,
           CASE WHEN w.updated_at >= l.updated_at THEN 'leased' ELSE w.was END AS was,
           CASE WHEN w.updated_at >= l.updated_at THEN l.lease_id END AS lease_id,
           CASE WHEN w.updated_at >= l.updated_at THEN l.node END AS node
    FROM looked k
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.seq, j.tenant, j.key, j.updated_at, j.lease_id, j.node FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = k.seq AND j.state::text = 'leased' AND j.visible_at < now()
          AND j.original_topic IS NULL AND (j.expires_at IS NULL OR j.expires_at > now())
          AND NOT ($6::boolean AND coalesce(j.max_deliveries, $7::integer) > 0
                   AND j.deliveries >= coalesce(j.max_deliveries, $7::integer))
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) l
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.seq, j.updated_at, j.state::text AS was FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = l.tenant AND j.key = l.key AND j.original_topic IS NULL
          AND j.state IN ('ready', 'scheduled', 'blocked') AND (j.expires_at IS NULL OR j.expires_at > now())
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) w
), done AS (
    DELETE FROM holdfast.jobs j USING (SELECT DISTINCT ON (tid) * FROM picked ORDER BY tid) p WHERE j.ctid = p.tid
    RETURNING p.by, p.was, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
    SELECT $1, topic_id, seq, 'superseded', deliveries, lease_id, node, 'by ' || by FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'), -sum(bytes)
    FROM done HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM done) AS ended, l.tenant, l.key, l.seq
FROM (SELECT 1) one LEFT JOIN (SELECT * FROM looked ORDER BY tenant DESC, key DESC, seq DESC LIMIT 1) l ON true
