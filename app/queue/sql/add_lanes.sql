-- Make lanes known before the first job in them is.   $1 topic  $2 tenants  $3 priorities; one each per lane
INSERT INTO holdfast.lanes (topic, tenant, priority)
SELECT DISTINCT $1, l.tenant, l.priority FROM unnest($2::text[], $3::smallint[]) AS l(tenant, priority)
ORDER BY 2, 3
ON CONFLICT DO NOTHING
