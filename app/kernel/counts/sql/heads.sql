-- Where do lanes begin?   lanes, each once:  $1 topics  $2 tenants  $3 priorities
--   $4 ready jobs above this position  $5 due jobs after this time, in µs since 1970
-- One row a lane, in order: `ready`, the first such job's position; `due`, the first such job's time in µs, if that has
-- come; `waited_ms`, for how long the earlier of the two could have been claimed. NULL for none. Plain reads: a row that somebody has locked counts. Not beyond now(): there stand the deadlines
-- of all leases that were settled early, and while somebody holds an old snapshot they can't be skipped.
-- Indexes: jobs_ready, jobs_due.
SELECT ready.position AS ready, (date_part('epoch', due.visible_at) * 1000000)::bigint AS due,
       (date_part('epoch', now() - least(ready.visible_at, due.visible_at)) * 1000)::bigint AS waited_ms
FROM unnest($1::text[], $2::text[], $3::smallint[], $4::bigint[], $5::bigint[])
    WITH ORDINALITY AS l(topic, tenant, priority, after, due_after, ord)
LEFT JOIN LATERAL (
    SELECT j.position, j.visible_at FROM holdfast.jobs j
    WHERE j.topic = l.topic AND j.tenant = l.tenant AND j.priority = l.priority AND j.state = 'ready'
      AND j.position > l.after
    ORDER BY j.position LIMIT 1
) ready ON true
LEFT JOIN LATERAL (
    SELECT j.visible_at FROM holdfast.jobs j
    WHERE j.topic = l.topic AND j.tenant = l.tenant AND j.priority = l.priority AND j.state IN ('leased', 'scheduled')
      AND j.visible_at > timestamptz 'epoch' + l.due_after * interval '1 microsecond' AND j.visible_at < now()
    ORDER BY j.visible_at LIMIT 1
) due ON true
ORDER BY l.ord
