-- Make lanes known before the first job in them is.   $1 topic  $2 its id  $3 tenants  $4 priorities; one each per lane
-- Nothing is written for a topic that was deleted: the lock on its row keeps a deletion waiting.
INSERT INTO holdfast.lanes (topic, tenant, priority)
SELECT $1, l.tenant, l.priority
FROM (SELECT t.id FROM holdfast.topics t WHERE t.name = $1 AND t.id = $2 FOR KEY SHARE) live
CROSS JOIN (SELECT DISTINCT * FROM unnest($3::text[], $4::smallint[]) AS l(tenant, priority) ORDER BY 1, 2) l
ON CONFLICT DO NOTHING
