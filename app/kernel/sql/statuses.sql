-- How many jobs topics have of each status.
--   $1 topics  $2 their ids; one each per topic  $3 most jobs of a topic to look at whose time has come or passed
-- One row a topic: pending, processing, failed, expired, by the database's clock. How many there are of each state stands
-- in the tallies; what changed by time alone is counted.
-- Indexes: primary key of tallies, primary key of lanes, jobs_expiring, jobs_due.
SELECT t.topic, (stored.waiting + due.ended - stale.n)::bigint AS pending,
       (stored.leased - due.ended)::bigint AS processing, stored.failed::bigint AS failed,
       (stored.expired + stale.n)::bigint AS expired
FROM unnest($1::text[], $2::integer[]) AS t(topic, topic_id)
CROSS JOIN LATERAL (
    SELECT coalesce(sum(y.ready + y.scheduled + y.blocked), 0) AS waiting, coalesce(sum(y.leased), 0) AS leased,
           coalesce(sum(y.failed), 0) AS failed, coalesce(sum(y.expired), 0) AS expired
    FROM holdfast.tallies y WHERE y.topic_id = t.topic_id
) stored CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = t.topic AND j.expires_at IS NOT NULL AND j.expires_at <= now()
          AND j.state IN ('ready', 'scheduled', 'blocked', 'leased') AND (j.state <> 'leased' OR j.visible_at < now())
        ORDER BY j.expires_at LIMIT $3::integer
    ) e
) stale CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE d.leased) AS ended FROM (
        SELECT one.leased FROM holdfast.lanes l CROSS JOIN LATERAL (
            SELECT j.state::text = 'leased' AS leased FROM holdfast.jobs j
            WHERE j.topic = t.topic AND j.tenant = l.tenant AND j.priority = l.priority
              AND j.state IN ('leased', 'scheduled') AND j.visible_at < now()
            ORDER BY j.visible_at LIMIT $3::integer
        ) one WHERE l.topic = t.topic LIMIT $3::integer
    ) d
) due
