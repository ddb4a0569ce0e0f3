-- Keep a new key.   $1 id  $2 name  $3 digest of its secret  $4 scopes  $5 prefixes  $6 ms until it expires, or NULL
--   $7 who made it  $8 its tenant, or NULL  $9 whether it hides payloads
INSERT INTO holdfast.api_keys (id, name, digest, scopes, prefixes, expires_at, created_by, tenant, hides_payloads)
VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6::bigint * interval '1 millisecond', $7, $8, $9)
