-- Count a topic's jobs, looking at no more than $2 in each of its two indexes.
--   $1 topic  $2 most entries to look at; NULL for all
-- Answers one row: ready (fresh, or their time has come), in_flight (leased, and the lease is good), looked_ready and
-- looked_due: an answer is exact where both are below $2. The orders by keep the planner on the two indexes.
-- Indexes: jobs_ready, jobs_due.
SELECT fresh.n + due.ready AS ready, due.in_flight, fresh.n AS looked_ready, due.n AS looked_due
FROM (
    SELECT count(*) AS n FROM (
        SELECT 1 FROM holdfast.jobs j WHERE j.topic = $1 AND j.state = 'ready'
        ORDER BY j.tenant, j.priority DESC, j.position LIMIT $2::integer
    ) r
) fresh CROSS JOIN (
    SELECT count(*) AS n, count(*) FILTER (WHERE visible_at < now()) AS ready,
           count(*) FILTER (WHERE leased AND visible_at >= now()) AS in_flight
    FROM (
        SELECT j.visible_at, j.state::text = 'leased' AS leased FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.state IN ('leased', 'scheduled')
        ORDER BY j.tenant, j.priority DESC, j.visible_at LIMIT $2::integer
    ) d
) due
