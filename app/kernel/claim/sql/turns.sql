-- How do the next jobs divide into fresh ones and ones whose time has come, if all are taken in the order of time?
--   $1 topic  $2 most jobs to look at in each part of a lane, also how many jobs are next
--   lanes, in claim order, each once:  $3 tenants  $4 priorities  $5 ready jobs above this position
--                                      $6 due jobs after this time, in µs since 1970 (NULL: don't look)
-- One row a lane that has some of them: `ord`, its place in $3 (from 1); how many of it are `next`, and how many of
-- those are `due`; and whether there are `more` due ones behind those.
-- A fresh job's time is when it was enqueued, but not before that of one at an earlier position: fresh ones stay in order.
-- Plain reads, as in heads.   Indexes: jobs_due, jobs_ready. Needs the hot pool's planner settings.
WITH lane AS MATERIALIZED (
    SELECT l.tenant, l.priority, l.after, l.ord,
           timestamptz 'epoch' + l.due_after * interval '1 microsecond' AS due_after
    FROM unnest($3::text[], $4::smallint[], $5::bigint[], $6::bigint[])
        WITH ORDINALITY AS l(tenant, priority, after, due_after, ord)
), next AS MATERIALIZED (
    SELECT l.ord, x.due, x.dues FROM lane l CROSS JOIN LATERAL (
        SELECT b.due, count(*) FILTER (WHERE b.due) OVER () AS dues
        FROM (
            SELECT true AS due, d.visible_at AS at, 0 AS position FROM (
                SELECT j.visible_at FROM holdfast.jobs j
                WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
                  AND j.state IN ('leased', 'scheduled') AND j.visible_at > l.due_after AND j.visible_at < now()
                ORDER BY j.visible_at LIMIT $2::integer
            ) d
            UNION ALL
            SELECT false, max(r.visible_at) OVER (ORDER BY r.position), r.position FROM (
                SELECT j.visible_at, j.position FROM holdfast.jobs j
                WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
                  AND j.state = 'ready' AND j.position > l.after
                ORDER BY j.position LIMIT $2::integer
            ) r
        ) b
        ORDER BY b.at, b.due, b.position LIMIT $2::integer
    ) x LIMIT $2::integer
)
SELECT ord, count(*) AS next, count(*) FILTER (WHERE due) AS due, count(*) FILTER (WHERE due) < max(dues) AS more
FROM next GROUP BY ord
