-- How many jobs of tenants are in flight: leased, and the lease is good.   $1 topic  $2 tenants  $3 most to count of each
-- One row a tenant: tenant, held. Only named tenants: others are not in the index.   Index: jobs_held.
SELECT t.tenant, held.held
FROM unnest($2::text[], $3::bigint[]) AS t(tenant, most) CROSS JOIN LATERAL (
    SELECT count(*) AS held FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = t.tenant AND j.tenant <> '' AND j.state = 'leased' AND j.visible_at >= now()
        ORDER BY j.visible_at LIMIT t.most
    ) one
) held
