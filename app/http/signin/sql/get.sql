-- A key without its digests.   $1 id   No row: there never was one.   Index: primary key.
SELECT k.id, k.name, k.scopes, k.prefixes, k.tenant, k.hides_payloads, k.created_at, k.created_by, k.rotated_at, k.expires_at, k.revoked_at,
    CASE WHEN k.old_until > now() THEN k.old_until END AS old_until,
    CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' ELSE 'live' END AS state
FROM holdfast.api_keys k WHERE k.id = $1
