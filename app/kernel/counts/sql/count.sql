-- Count a topic's jobs.
--   $1 topic  $2 topic id  $3 whether deliveries run out here  $4 the topic's max_deliveries
--   $5 most entries to look at of jobs whose time has come or passed; NULL for all   $6 tallies above this id
--   low marks of lanes that have one:  $7 tenants  $8 priorities  $9 times in µs since 1970
-- Answers one row: ready (fresh, or their time has come; not what has outlived its time or has no delivery left),
-- in_flight (leased, and the lease is good), scheduled (its time is yet to come), blocked, count (all that are not
-- finished: those above, and jobs with no delivery left that wait to be taken out), and `looked`, the
-- most entries looked at in one index: the answer is exact where it is below $5. How many there are of each state stands in the tallies; what changes by time alone is counted.
-- The orders by keep the planner on the indexes.
-- Indexes: primary key of tallies, primary key of lanes, jobs_expiring, jobs_due.
WITH lane AS MATERIALIZED (
    SELECT l.tenant, l.priority,
           coalesce(timestamptz 'epoch' + m.due_low * interval '1 microsecond', '-infinity') AS due_low
    FROM holdfast.lanes l
    LEFT JOIN unnest($7::text[], $8::smallint[], $9::bigint[]) AS m(tenant, priority, due_low)
        ON m.tenant = l.tenant AND m.priority = l.priority
    WHERE l.topic = $1
)
SELECT (stored.ready - stale.ready + due.ready)::bigint AS ready, (stored.leased - due.ended)::bigint AS in_flight,
       (stored.scheduled - due.n + due.ended)::bigint AS scheduled, stored.blocked::bigint AS blocked,
       (stored.ready + stored.scheduled + stored.blocked + stored.leased - stale.hidden)::bigint AS count,
       greatest(stale.n, due.n) AS looked
FROM (
    SELECT coalesce(sum(ready), 0) AS ready, coalesce(sum(scheduled), 0) AS scheduled,
           coalesce(sum(blocked), 0) AS blocked, coalesce(sum(leased), 0) AS leased
    FROM holdfast.tallies t WHERE t.topic_id = $2 AND t.id > $6
) stored CROSS JOIN (
    SELECT count(*) AS n, count(*) FILTER (WHERE ready) AS ready, count(*) FILTER (WHERE NOT shielded) AS hidden FROM (
        SELECT j.state::text = 'ready' AS ready, j.state::text = 'leased' AND j.visible_at >= now() AS shielded
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.expires_at IS NOT NULL AND j.expires_at <= now()
          AND j.state IN ('ready', 'scheduled', 'blocked', 'leased')
        ORDER BY j.expires_at LIMIT $5::integer
    ) e
) stale CROSS JOIN (
    SELECT count(*) AS n, count(*) FILTER (WHERE NOT spent) AS ready, count(*) FILTER (WHERE leased) AS ended
    FROM (
        SELECT one.* FROM lane l CROSS JOIN LATERAL (
            SELECT j.state::text = 'leased' AS leased,
                   coalesce(j.expires_at <= now(), false)
                   OR ($3::boolean AND coalesce(j.max_deliveries, $4::integer) > 0
                       AND j.deliveries >= coalesce(j.max_deliveries, $4::integer)) AS spent
            FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
              AND j.state IN ('leased', 'scheduled') AND j.visible_at > l.due_low AND j.visible_at < now()
            ORDER BY j.visible_at LIMIT $5::integer
        ) one LIMIT $5::integer
    ) d
) due
