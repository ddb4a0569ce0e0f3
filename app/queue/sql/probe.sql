-- Is there something to claim, and when will there be?   $1 topics
--   low marks of lanes that have one:  $2 topics  $3 tenants  $4 priorities  $5 positions  $6 times in µs since 1970
-- One row a topic: claimable, and wait_ms, the time until the next scheduled job or ending lease (NULL: none
-- within a second; further on stand the deadlines of leases that were settled early), and `at`, now() in µs since 1970.
-- Plain reads: takes no lock and waits for none. Not EXISTS, of which the planner makes a hash of all that is ready.
-- Indexes: primary key of lanes, jobs_ready, jobs_due.
WITH mark AS MATERIALIZED (
    SELECT m.topic, m.tenant, m.priority, m.low, timestamptz 'epoch' + m.due_low * interval '1 microsecond' AS due_low
    FROM unnest($2::text[], $3::text[], $4::smallint[], $5::bigint[], $6::bigint[])
        AS m(topic, tenant, priority, low, due_low)
), lane AS MATERIALIZED (
    SELECT l.topic, l.tenant, l.priority, coalesce(m.low, 0) AS low, coalesce(m.due_low, '-infinity') AS due_low
    FROM holdfast.lanes l
    LEFT JOIN mark m ON m.topic = l.topic AND m.tenant = l.tenant AND m.priority = l.priority
    WHERE l.topic = ANY ($1::text[])
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
