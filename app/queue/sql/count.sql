-- Count a topic's jobs, looking at no more than $2 entries in each of its indexes.
--   $1 topic  $2 most entries to look at; NULL for all  $3 whether deliveries run out here  $4 the topic's max_deliveries
--   low marks of lanes that have one:  $5 tenants  $6 priorities  $7 positions  $8 times in µs since 1970
-- Answers one row: ready (fresh, or their time has come; not what has outlived its time or has no delivery left),
-- in_flight (leased, and the lease is good), and `looked`, the most entries looked at in one index: the answer is exact
-- where it is below $2. The orders by keep the planner on the indexes; the first count never reads a row.
-- Indexes: primary key of lanes, jobs_ready, jobs_expiring, jobs_due.
WITH lane AS MATERIALIZED (
    SELECT l.tenant, l.priority, coalesce(m.low, 0) AS low,
           coalesce(timestamptz 'epoch' + m.due_low * interval '1 microsecond', '-infinity') AS due_low
    FROM holdfast.lanes l
    LEFT JOIN unnest($5::text[], $6::smallint[], $7::bigint[], $8::bigint[]) AS m(tenant, priority, low, due_low)
        ON m.tenant = l.tenant AND m.priority = l.priority
    WHERE l.topic = $1
)
SELECT fresh.n - stale.n + due.ready AS ready, due.in_flight, greatest(fresh.n, stale.n, due.n) AS looked
FROM (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM lane l CROSS JOIN LATERAL (
            SELECT 1 FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority AND j.state = 'ready'
              AND j.position > l.low
            ORDER BY j.position LIMIT $2::integer
        ) one LIMIT $2::integer
    ) r
) fresh CROSS JOIN (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.expires_at IS NOT NULL AND j.expires_at <= now()
          AND j.state IN ('ready', 'scheduled', 'blocked', 'leased') AND j.state::text = 'ready'
        ORDER BY j.expires_at LIMIT $2::integer
    ) e
) stale CROSS JOIN (
    SELECT count(*) AS n, count(*) FILTER (WHERE visible_at < now() AND NOT spent) AS ready,
           count(*) FILTER (WHERE leased AND visible_at >= now()) AS in_flight
    FROM (
        SELECT one.* FROM lane l CROSS JOIN LATERAL (
            SELECT j.visible_at, j.state::text = 'leased' AS leased,
                   coalesce(j.expires_at <= now(), false)
                   OR ($3::boolean AND coalesce(j.max_deliveries, $4::integer) > 0
                       AND j.deliveries >= coalesce(j.max_deliveries, $4::integer)) AS spent
            FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
              AND j.state IN ('leased', 'scheduled') AND j.visible_at > l.due_low
            ORDER BY j.visible_at LIMIT $2::integer
        ) one LIMIT $2::integer
    ) d
) due
