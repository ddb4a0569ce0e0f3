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
