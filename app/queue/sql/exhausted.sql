-- Which jobs' last lease ended in silence: nobody settled them, and no delivery is left.
--   $1 topic  $2 tenant  $3 priority  $4 the topic's max_deliveries, 0 for no end  $5 most jobs to name
-- One row a job: its seq. Locks nothing; bury and fail look again.   Index: jobs_due.
SELECT j.seq FROM holdfast.jobs j
WHERE j.topic = $1 AND j.tenant = $2 AND j.priority = $3 AND j.state IN ('leased', 'scheduled')
  AND j.visible_at < now()
  AND coalesce(j.max_deliveries, $4::integer) > 0 AND j.deliveries >= coalesce(j.max_deliveries, $4::integer)
ORDER BY j.visible_at LIMIT $5::integer
