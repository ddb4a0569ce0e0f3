-- Groups of a topic of which jobs wait behind the one that is out.   $1 topic  $2 most groups to look at, by tenant and name
--   $3 most to name  $4 most jobs to count of a group  $5 how long jobs may wait, in ms (0: for ever)
-- One row a group, first those of which the job that is out was claimed so long ago, and is leased or delayed still, the one
-- that was claimed first before others; then those whose first job failed twice or more; then those with the most jobs: tenant, grp, behind, how many wait; and of the job that is out, as
-- group_head: seq (NULL: none is, its successor is being let through), state, node, until_ms.
-- One look into an index finds a group's first job, wherever the one before ends. Indexes: jobs_blocked, jobs_group_out.
WITH RECURSIVE g AS (
    (SELECT j.tenant, j.grp FROM holdfast.jobs j WHERE j.topic = $1 AND j.state = 'blocked'
     ORDER BY j.tenant, j.grp LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.grp FROM g CROSS JOIN LATERAL (
        SELECT j.tenant, j.grp FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.state = 'blocked' AND (j.tenant, j.grp) > (g.tenant, g.grp)
        ORDER BY j.tenant, j.grp LIMIT 1
    ) n
)
SELECT one.tenant, one.grp, b.behind, o.seq, o.state, o.node, o.until_ms
FROM (SELECT g.tenant, g.grp FROM g LIMIT $2::integer) one
CROSS JOIN LATERAL (
    SELECT count(*) AS behind FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = one.tenant AND j.grp = one.grp AND j.state = 'blocked' LIMIT $4::integer
    ) x
) b
LEFT JOIN LATERAL (
    SELECT j.seq, j.node, (date_part('epoch', j.visible_at) * 1000)::bigint AS until_ms,
           holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state,
           CASE WHEN $5::bigint > 0 AND j.deliveries > 0 AND j.visible_at >= now()
                     AND j.leased_at <= now() - $5::bigint * interval '1 ms' THEN j.leased_at END AS stuck_at,
           j.deliveries - (j.state = 'leased' AND j.visible_at >= now())::integer >= 2 AS fails
    FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.tenant = one.tenant AND j.grp = one.grp AND j.original_topic IS NULL
      AND j.state IN ('ready', 'scheduled', 'leased')
    LIMIT 1
) o ON true
ORDER BY o.stuck_at, o.fails IS TRUE DESC, b.behind DESC, one.tenant, one.grp LIMIT $3::integer
