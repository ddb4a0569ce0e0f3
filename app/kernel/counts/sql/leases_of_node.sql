-- Leases of a topic that a node holds, some of each lane at a time.
--   $1 topic   lanes, each once:  $2 tenants  $3 priorities  $4 behind this deadline
--   $5 node  $6 taken by then, or NULL: by now  $7 most leases and delays of a lane to look at
-- One row for each lane: `ord`, its place in $2 (from 1); seqs and leases, those found; `last`, the last deadline or delay
-- that was looked at (NULL: the lane has no more); `at`, now().
-- All that end at the same time are looked at together, so the next look begins behind `last`. No lease is good for longer
-- than 24 hours, so delays that end later are not looked at. Locks nothing: the caller names the lease.   Index: jobs_due.
SELECT l.ord, coalesce(x.seqs, '{}') AS seqs, coalesce(x.leases, '{}') AS leases,
       CASE WHEN x.looked >= $7::integer THEN x.last END AS last, now() AS at
FROM unnest($2::text[], $3::smallint[], $4::timestamptz[]) WITH ORDINALITY AS l(tenant, priority, after, ord)
CROSS JOIN LATERAL (
    SELECT count(*) AS looked, max(one.visible_at) AS last,
           array_agg(one.seq) FILTER (WHERE one.held) AS seqs, array_agg(one.lease_id) FILTER (WHERE one.held) AS leases
    FROM (
        SELECT j.seq, j.lease_id, j.visible_at,
               j.state::text = 'leased' AND j.node = $5 AND j.leased_at <= coalesce($6::timestamptz, now()) AS held
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority AND j.state IN ('leased', 'scheduled')
          AND j.visible_at > l.after AND j.visible_at >= now() AND j.visible_at < now() + interval '24 hours 1 minute'
        ORDER BY j.visible_at FETCH FIRST ($7::integer) ROWS WITH TIES
    ) one
) x
