-- name: of_tenant
-- Which jobs belong to a tenant?
--   $1  topic
--   $2  its id
--   $3  tenant
--   $4  seqs
-- Answers one row: their seqs. A dead letter belongs to the tenant it had before. Takes no locks: a job's tenant never
-- changes.   Index: primary key.
SELECT array(
    SELECT j.seq FROM unnest($4::bigint[]) AS r(seq) CROSS JOIN LATERAL (
        SELECT j.seq, j.tenant, j.original_tenant FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = r.seq LIMIT 1
    ) j
    WHERE coalesce(j.original_tenant, j.tenant) = $3::text
) AS seqs

-- name: tenant_stats
-- The counts of a topic's tenants.
--   $1   topic
--   $2   tenants from this name on
--   $3   most tenants
--   $4   only this tenant, or NULL
--   $5   most entries to count, of each lane and state, and of failed jobs in either topic
--   $6   whether deliveries are limited here
--   $7   the topic's max_deliveries
--   $8   its dead-letter topic, or NULL
--   Low marks of the lanes that have some:
--   $9   tenants
--   $10  priorities
--   $11  positions
--   $12  times in µs since 1970
-- One row per tenant, by name:
--   ready      ready or due, without expired jobs and jobs with no deliveries left
--   scheduled, in_flight, blocked
--   dead       jobs that failed in the topic, and are in it or in its dead-letter topic
--   at_least   whether there may be more of any
--   oldest_ms  how long the oldest one has been claimable; NULL: none is
-- Indexes: primary key of lanes, jobs_ready, jobs_due, jobs_blocked, jobs_failures.
WITH name AS MATERIALIZED (
    SELECT DISTINCT l.tenant FROM holdfast.lanes l
    WHERE l.topic = $1 AND l.tenant >= $2 AND ($4::text IS NULL OR l.tenant = $4::text)
    ORDER BY l.tenant LIMIT $3::integer
), lane AS MATERIALIZED (
    SELECT l.tenant, l.priority, coalesce(m.low, 0) AS low,
           coalesce(timestamptz 'epoch' + m.due_low * interval '1 microsecond', '-infinity') AS due_low
    FROM name n JOIN holdfast.lanes l ON l.topic = $1 AND l.tenant = n.tenant
    LEFT JOIN unnest($9::text[], $10::smallint[], $11::bigint[], $12::bigint[]) AS m(tenant, priority, low, due_low)
        ON m.tenant = l.tenant AND m.priority = l.priority
), part AS MATERIALIZED (
    SELECT l.tenant, fresh.ready + due.ready AS ready, due.scheduled, due.held, fresh.n >= $5 OR due.n >= $5 AS more,
           least(fresh.since, due.since) AS since
    FROM lane l CROSS JOIN LATERAL (
        SELECT count(*) AS n, count(*) FILTER (WHERE lives) AS ready, min(visible_at) FILTER (WHERE lives) AS since
        FROM (
            SELECT j.visible_at, j.expires_at IS NULL OR j.expires_at > now() AS lives FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority AND j.state = 'ready'
              AND j.position > l.low
            ORDER BY j.position LIMIT $5::integer
        ) one
    ) fresh CROSS JOIN LATERAL (
        SELECT count(*) AS n, count(*) FILTER (WHERE come AND NOT spent) AS ready,
               count(*) FILTER (WHERE NOT come AND leased) AS held, count(*) FILTER (WHERE NOT come AND NOT leased) AS scheduled,
               min(visible_at) FILTER (WHERE come AND NOT spent) AS since
        FROM (
            SELECT j.visible_at, j.visible_at < now() AS come, j.state::text = 'leased' AS leased,
                   coalesce(j.expires_at <= now(), false)
                   OR ($6::boolean AND coalesce(j.max_deliveries, $7::integer) > 0
                       AND j.deliveries >= coalesce(j.max_deliveries, $7::integer)) AS spent
            FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
              AND j.state IN ('leased', 'scheduled') AND j.visible_at > l.due_low
            ORDER BY j.visible_at LIMIT $5::integer
        ) one
    ) due
), dead AS MATERIALIZED (
    (SELECT j.tenant FROM holdfast.jobs j
     WHERE j.topic = $1 AND j.failed_in = $1 AND j.cluster IS NOT NULL ORDER BY j.cluster LIMIT $5::integer)
    UNION ALL
    (SELECT coalesce(j.original_tenant, j.tenant) FROM (SELECT $8::text AS topic) t JOIN holdfast.jobs j ON true
     WHERE j.topic = t.topic AND j.failed_in = $1 AND j.cluster IS NOT NULL ORDER BY j.cluster LIMIT $5::integer)
), letters AS MATERIALIZED (
    SELECT d.tenant, count(*) AS n FROM dead d GROUP BY d.tenant
)
SELECT p.tenant, p.ready, p.scheduled, p.in_flight, blocked.n AS blocked, coalesce(l.n, 0) AS dead,
       p.more OR blocked.n >= $5 OR (SELECT count(*) FROM dead) >= $5 AS at_least,
       (date_part('epoch', now() - p.since) * 1000)::bigint AS oldest_ms
FROM (
    SELECT tenant, sum(ready)::bigint AS ready, sum(scheduled)::bigint AS scheduled, sum(held)::bigint AS in_flight,
           bool_or(more) AS more, min(since) AS since
    FROM part GROUP BY tenant
) p CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM holdfast.jobs j WHERE j.topic = $1 AND j.tenant = p.tenant AND j.state = 'blocked' LIMIT $5::integer
    ) one
) blocked
LEFT JOIN letters l ON l.tenant = p.tenant
ORDER BY p.tenant

-- name: working
-- Which lanes of a topic have a job to claim, or will have one soon?
--   $1  topic
--   Low marks of its lanes:
--   $2  ready jobs above this position
--   $3  due jobs after this time, in µs since 1970
--   Lanes with other low marks, each once:
--   $4  tenants
--   $5  priorities
--   $6  positions
--   $7  times
--   $8  how soon, in ms
-- One row per such lane: tenant, priority, `wait_ms`, the time until then (0: now). Reads all lanes of a topic with two
-- index reads each, however many jobs there are. Locked jobs count.
-- Takes no locks, as heads.   Indexes: primary key of lanes, jobs_ready, jobs_due.
WITH lane AS MATERIALIZED (
    -- Grouped instead of joined: without hash and merge joins, a join would compare every lane with every other.
    SELECT one.tenant, one.priority, coalesce(max(one.low), $2::bigint) AS low,
           timestamptz 'epoch' + coalesce(max(one.due_low), $3::bigint) * interval '1 microsecond' AS due_low
    FROM (
        SELECT l.tenant, l.priority, NULL::bigint AS low, NULL::bigint AS due_low
        FROM holdfast.lanes l WHERE l.topic = $1
        UNION ALL
        SELECT m.tenant, m.priority, m.low, m.due_low
        FROM unnest($4::text[], $5::smallint[], $6::bigint[], $7::bigint[]) AS m(tenant, priority, low, due_low)
    ) one
    GROUP BY one.tenant, one.priority
)
SELECT l.tenant, l.priority,
       CASE WHEN ready.position IS NOT NULL THEN 0
            ELSE greatest(ceil(date_part('epoch', due.at - now()) * 1000), 0) END::integer AS wait_ms
FROM lane l
LEFT JOIN LATERAL (
    SELECT j.position FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority AND j.state = 'ready' AND j.position > l.low
    ORDER BY j.position LIMIT 1
) ready ON true
LEFT JOIN LATERAL (
    SELECT j.visible_at AS at FROM holdfast.jobs j
    WHERE ready.position IS NULL AND j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
      AND j.state IN ('leased', 'scheduled') AND j.visible_at > l.due_low
      AND j.visible_at < now() + $8::integer * interval '1 ms'
    ORDER BY j.visible_at LIMIT 1
) due ON true
WHERE ready.position IS NOT NULL OR due.at IS NOT NULL
