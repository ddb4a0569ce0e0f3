-- The lanes that have appeared in a topic, in claim order.   $1 topic
-- One row a lane: tenant, priority.   Index: primary key of lanes.
SELECT tenant, priority FROM holdfast.lanes WHERE topic = $1 ORDER BY priority DESC, tenant
