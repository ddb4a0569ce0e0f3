-- The lanes that have appeared in a topic, in claim order.   $1 topic  $2 how many of them are known
-- One row a lane: tenant, priority; none where there are no more than those: a lane goes with its topic only, and a list of
-- a hundred thousand takes a while to send.   Index: primary key of lanes.
SELECT tenant, priority FROM holdfast.lanes
WHERE topic = $1 AND (SELECT count(*) FROM holdfast.lanes WHERE topic = $1) <> $2::bigint
ORDER BY priority DESC, tenant
