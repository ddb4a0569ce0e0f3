-- Who holds jobs of a topic, by node.   $1 topic  $2 most jobs of a lane to look at  $3 most jobs in all  $4 most nodes
-- One row a node, those with the most jobs first: node, held, and in ms since 1970 leased_ms, when the oldest of them was
-- claimed, and until_ms, when the first of their leases ends. Those are looked at whose leases end first.   Index: jobs_due.
SELECT h.node, count(*) AS held, (date_part('epoch', min(h.leased_at)) * 1000)::bigint AS leased_ms,
       (date_part('epoch', min(h.visible_at)) * 1000)::bigint AS until_ms
FROM (
    SELECT one.node, one.leased_at, one.visible_at FROM holdfast.lanes l CROSS JOIN LATERAL (
        SELECT j.node, j.leased_at, j.visible_at, j.state::text AS state FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
          AND j.state IN ('leased', 'scheduled') AND j.visible_at >= now()
        ORDER BY j.visible_at LIMIT $2::integer
    ) one
    WHERE l.topic = $1 AND one.state = 'leased'
    LIMIT $3::integer
) h
GROUP BY h.node ORDER BY held DESC, h.node LIMIT $4::integer
