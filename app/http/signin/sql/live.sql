-- Every secret that is good now, those before a rotation included while their grace lasts.   $1 most rows
-- Answers one row a secret: the key's id and name, the digest, scopes, prefixes, tenant, whether it hides payloads, and in how
-- many seconds it ends, NULL for never.   Reads the whole table, which is small.
SELECT s.id, s.name, s.digest, s.scopes, s.prefixes, s.tenant, s.hides_payloads,
    extract(epoch FROM s.ends - clock_timestamp())::double precision AS seconds
FROM (
    SELECT k.id, k.name, k.digest, k.scopes, k.prefixes, k.tenant, k.hides_payloads, k.expires_at AS ends
    FROM holdfast.api_keys k WHERE k.revoked_at IS NULL
    UNION ALL
    SELECT k.id, k.name, k.old_digest, k.scopes, k.prefixes, k.tenant, k.hides_payloads, least(k.old_until, k.expires_at)
    FROM holdfast.api_keys k WHERE k.revoked_at IS NULL AND k.old_until IS NOT NULL
) s
WHERE s.ends IS NULL OR s.ends > now()
LIMIT $1
