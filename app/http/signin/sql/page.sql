-- A page of keys without their digests, the newest first.   $1 made before this time, or at it with  $2 an id below this
--   $3 most rows  $4 only keys with no other scopes than these
--   $5 only keys whose every prefix starts with one of these; empty for all  $6 those that see payloads, too
-- Index: api_keys_page, from its end.
SELECT k.id, k.name, k.scopes, k.prefixes, k.tenant, k.hides_payloads, k.created_at, k.created_by, k.rotated_at, k.expires_at, k.revoked_at,
    CASE WHEN k.old_until > now() THEN k.old_until END AS old_until,
    CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' ELSE 'live' END AS state
FROM holdfast.api_keys k
WHERE (k.created_at, k.id) < ($1::timestamptz, $2::text) AND k.scopes <@ $4::text[] AND ($6 OR k.hides_payloads)
  AND ($5::text[] = '{}' OR (k.prefixes <> '{}' AND NOT EXISTS (
       SELECT 1 FROM unnest(k.prefixes) AS own
       WHERE NOT EXISTS (SELECT 1 FROM unnest($5::text[]) AS allowed WHERE starts_with(own, allowed)))))
ORDER BY k.created_at DESC, k.id DESC LIMIT $3
