-- The lanes of a topic, in claim order.   $1 topic  $2 how many of them the caller knows
-- One row per lane: tenant, priority. No rows if there are exactly $2 lanes: lanes are deleted only with their topic,
-- and sending a list of a hundred thousand takes time.   Index: primary key of lanes.
SELECT tenant, priority FROM holdfast.lanes
WHERE topic = $1 AND (SELECT count(*) FROM holdfast.lanes WHERE topic = $1) <> $2::bigint
ORDER BY priority DESC, tenant
