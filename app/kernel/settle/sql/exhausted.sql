-- Which jobs' last lease ended in silence: nobody settled them, and no delivery is left.
--   $1 topic  lanes, each once: $2 tenants  $3 priorities  $4 the topic's max_deliveries, 0 for no end  $5 most jobs to name
-- One row a job: its seq. Locks nothing; bury and fail look again.   Index: jobs_due.
SELECT x.seq FROM unnest($2::text[], $3::smallint[]) AS l(tenant, priority) CROSS JOIN LATERAL (
    SELECT j.seq FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority AND j.state IN ('leased', 'scheduled')
      AND j.visible_at < now()
      AND coalesce(j.max_deliveries, $4::integer) > 0 AND j.deliveries >= coalesce(j.max_deliveries, $4::integer)
    ORDER BY j.visible_at LIMIT $5::integer
) x LIMIT $5::integer
