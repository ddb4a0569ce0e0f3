-- The lease under which a group's job is out.   $1 topic  $2 tenant  $3 group
-- One row where its lease is good: seq, lease_id, node. Locks nothing: the caller names the lease.   Index: jobs_group_out.
SELECT j.seq, j.lease_id, j.node FROM holdfast.jobs j
WHERE j.topic = $1 AND j.tenant = $2 AND j.grp = $3 AND j.grp IS NOT NULL AND j.original_topic IS NULL
  AND j.state IN ('ready', 'scheduled', 'leased') AND j.state::text = 'leased' AND j.visible_at >= now()
LIMIT 1
