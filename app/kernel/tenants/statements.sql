-- name: of_tenant
-- Which jobs are a tenant's?   $1 topic  $2 its id  $3 tenant  $4 seqs
-- Answers one row: their seqs. A dead letter is whose it was before. Plain reads: a job's tenant never changes.
-- Index: primary key.
SELECT array(
    SELECT j.seq FROM unnest($4::bigint[]) AS r(seq) CROSS JOIN LATERAL (
        SELECT j.seq, j.tenant, j.original_tenant FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = r.seq LIMIT 1
    ) j
    WHERE coalesce(j.original_tenant, j.tenant) = $3::text
) AS seqs

-- name: tenant_stats
-- What a topic's tenants have.   $1 topic  $2 tenants from this name on  $3 most tenants  $4 only this one, or NULL
--   $5 most entries to count of each lane and kind, and of what failed in either topic  $6 whether deliveries run out here
--   $7 the topic's max_deliveries  $8 where its dead letters go, or NULL
--   low marks of lanes that have one:  $9 tenants  $10 priorities  $11 positions  $12 times in µs since 1970
-- One row a tenant, by name: tenant; ready (fresh, or their time has come; not what has outlived its time or has no
-- delivery left), scheduled, in_flight, blocked; dead, those that failed in the topic, and are kept in it or are in its
-- dead-letter topic; at_least, whether there may be
-- more of any; and oldest_ms, for how long the oldest could have been claimed (NULL: there is none).
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
-- Which lanes of a topic have something to claim, or will have soon?   $1 topic
--   where its lanes begin:  $2 ready jobs above this position  $3 due jobs after this time, in µs since 1970
--   but these, each once:  $4 tenants  $5 priorities  $6 positions  $7 times      $8 how soon, in ms
-- One row for each that has: tenant, priority, and `wait_ms`, the time until then (0: now). For all of a topic's lanes, in
-- one read: two looks into an index for each, however many jobs there are. What somebody has locked counts.
-- Plain reads, as in heads.   Indexes: primary key of lanes, jobs_ready, jobs_due.
WITH lane AS MATERIALIZED (
    -- By grouping, not by a join: with hash and merge joins off it would compare every lane with every other.
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
