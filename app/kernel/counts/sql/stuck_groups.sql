-- Groups that don't move, of queues in which jobs are blocked.
--   $1 topics  $2 how long their jobs may wait, in ms (0: for ever)  behind these groups:  $3 tenants  $4 groups; one each
--   $5 most groups of a topic to look at, by tenant and name  $6 most jobs of a group to count
--   $7 most heads of a topic to name that fail again and again
-- One row a topic: looked, how many groups; the last of them, tenant and grp; oldest_ms, for how long the first job behind
-- a head has waited, where that is not delayed as its producer asked; and of groups that don't move: stuck, how many; behind,
-- how many jobs wait in them; stuck_ms, how long ago the job that is out was claimed, at most.
-- A group doesn't move where the job that is out was claimed so long ago, and is leased or delayed still.
-- A job's row does not say for how long it has failed. So heads that failed twice or more are named, and failing_heads.sql
-- asks the ledger: tenants, grps, seqs; since, since when the first job behind each has waited; and till, up to when it was
-- leased or delayed: now, or its last claim. Those that have waited longest, of groups whose first job behind has waited so
-- long. A head that nobody claimed lately is not among them.
-- One look into an index finds a group's first job, wherever the one before ends. Indexes: jobs_blocked, jobs_group_out.
SELECT t.topic, g.looked, g.tenant, g.grp, g.oldest_ms, g.stuck, g.behind, g.stuck_ms, g.tenants, g.grps, g.seqs, g.since, g.till
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS t(topic, goal_ms, tenant, grp)
CROSS JOIN LATERAL (
    WITH RECURSIVE first AS (
        (SELECT j.tenant, j.grp, j.visible_at FROM holdfast.jobs j
         WHERE j.topic = t.topic AND j.state = 'blocked' AND (j.tenant, j.grp) > (t.tenant, t.grp)
         ORDER BY j.tenant, j.grp, j.seq LIMIT 1)
        UNION ALL
        SELECT n.tenant, n.grp, n.visible_at FROM first f CROSS JOIN LATERAL (
            SELECT j.tenant, j.grp, j.visible_at FROM holdfast.jobs j
            WHERE j.topic = t.topic AND j.state = 'blocked' AND (j.tenant, j.grp) > (f.tenant, f.grp)
            ORDER BY j.tenant, j.grp, j.seq LIMIT 1
        ) n
    )
    SELECT count(*) AS looked, (array_agg(one.tenant ORDER BY one.tenant DESC, one.grp DESC))[1] AS tenant,
           (array_agg(one.grp ORDER BY one.tenant DESC, one.grp DESC))[1] AS grp,
           max(one.waited_ms) FILTER (WHERE o.put_off IS NOT TRUE) AS oldest_ms, count(*) FILTER (WHERE o.stuck_ms IS NOT NULL) AS stuck,
           coalesce(sum(b.behind), 0)::bigint AS behind, coalesce(max(o.stuck_ms), 0) AS stuck_ms,
           (array_agg(one.tenant ORDER BY one.since, one.grp) FILTER (WHERE f.fails))[:$7::integer] AS tenants,
           (array_agg(one.grp ORDER BY one.since, one.grp) FILTER (WHERE f.fails))[:$7::integer] AS grps,
           (array_agg(o.seq ORDER BY one.since, one.grp) FILTER (WHERE f.fails))[:$7::integer] AS seqs,
           (array_agg(one.since ORDER BY one.since, one.grp) FILTER (WHERE f.fails))[:$7::integer] AS since,
           (array_agg(o.till ORDER BY one.since, one.grp) FILTER (WHERE f.fails))[:$7::integer] AS till
    FROM (
        SELECT f.tenant, f.grp, f.visible_at AS since,
               nullif(greatest((date_part('epoch', now() - f.visible_at) * 1000)::bigint, 0), 0) AS waited_ms
        FROM first f LIMIT $5::integer
    ) one
    LEFT JOIN LATERAL (
        SELECT x.seq, x.deliveries = 0 AND x.visible_at > now() AS put_off,
               x.deliveries - (x.state = 'leased' AND x.visible_at >= now())::integer >= 2 AND x.claimed_ms < t.goal_ms AS fails,
               CASE WHEN x.visible_at >= now() THEN now() ELSE x.leased_at END AS till,
               CASE WHEN t.goal_ms > 0 AND x.deliveries > 0 AND x.visible_at >= now() AND x.claimed_ms >= t.goal_ms
                    THEN x.claimed_ms END AS stuck_ms
        FROM (
            SELECT j.seq, j.state, j.deliveries, j.visible_at, j.leased_at,
                   (date_part('epoch', now() - j.leased_at) * 1000)::bigint AS claimed_ms
            FROM holdfast.jobs j
            WHERE j.topic = t.topic AND j.tenant = one.tenant AND j.grp = one.grp AND j.grp IS NOT NULL
              AND j.original_topic IS NULL AND j.state IN ('ready', 'scheduled', 'leased')
            LIMIT 1
        ) x
    ) o ON true
    CROSS JOIN LATERAL (SELECT o.fails AND one.waited_ms >= t.goal_ms AS fails) f
    LEFT JOIN LATERAL (
        SELECT count(*) AS behind FROM (
            SELECT 1 FROM holdfast.jobs j
            WHERE o.stuck_ms IS NOT NULL AND j.topic = t.topic AND j.tenant = one.tenant AND j.grp = one.grp
              AND j.state = 'blocked' LIMIT $6::integer
        ) y
    ) b ON true
) g
