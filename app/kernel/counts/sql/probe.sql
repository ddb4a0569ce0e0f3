-- Is there a job to claim, and when will there be?
--   Topics:
--   $1  names
--   Low marks of their lanes:
--   $2  positions
--   $3  times in µs since 1970
--   Lanes with other low marks, each once:
--   $4  topics
--   $5  tenants
--   $6  priorities
--   $7  positions
--   $8  times
-- One row per topic: claimable; wait_ms, the time until the next delay or lease ends (NULL: not within a second, since
-- deadlines of leases that were settled early are further on); `at`, now() in µs since 1970.
-- Takes no locks and waits for none. Not EXISTS, because the planner would hash all ready jobs for it.
-- Indexes: primary key of lanes, jobs_ready, jobs_due.
WITH lane AS MATERIALIZED (
    -- Grouped instead of joined, see `working`.
    SELECT one.topic, one.tenant, one.priority, coalesce(max(one.low), max(one.floor)) AS low,
           timestamptz 'epoch' + coalesce(max(one.due_low), max(one.due_floor)) * interval '1 microsecond' AS due_low
    FROM (
        SELECT l.topic, l.tenant, l.priority, t.floor, t.due_floor, NULL::bigint AS low, NULL::bigint AS due_low
        FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS t(topic, floor, due_floor)
        JOIN holdfast.lanes l ON l.topic = t.topic
        UNION ALL
        SELECT m.topic, m.tenant, m.priority, NULL, NULL, m.low, m.due_low
        FROM unnest($4::text[], $5::text[], $6::smallint[], $7::bigint[], $8::bigint[])
            AS m(topic, tenant, priority, low, due_low)
    ) one
    GROUP BY one.topic, one.tenant, one.priority
)
SELECT l.topic, bool_or(ready.position IS NOT NULL OR coalesce(due.at < now(), false)) AS claimable,
       (date_part('epoch', min(due.at) - now()) * 1000)::bigint AS wait_ms,
       (date_part('epoch', now()) * 1000000)::bigint AS at
FROM lane l
LEFT JOIN LATERAL (
    SELECT j.position FROM holdfast.jobs j WHERE j.topic = l.topic AND j.tenant = l.tenant
    AND j.priority = l.priority AND j.state = 'ready' AND j.position > l.low
    ORDER BY j.position LIMIT 1
) ready ON true
LEFT JOIN LATERAL (
    SELECT j.visible_at AS at FROM holdfast.jobs j WHERE j.topic = l.topic AND j.tenant = l.tenant
    AND j.priority = l.priority AND j.state IN ('leased', 'scheduled') AND j.visible_at > l.due_low
    AND j.visible_at < now() + interval '1 second'
    ORDER BY j.visible_at LIMIT 1
) due ON true
GROUP BY l.topic
