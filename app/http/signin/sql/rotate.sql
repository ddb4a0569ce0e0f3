-- Give a live key another secret.   $1 id  $2 digest of the new one  $3 ms for which the one before stays good; 0: none
-- Answers one row: its id. No row: there is no such key, or it is not live.   Index: primary key.
UPDATE holdfast.api_keys k
SET digest = $2, rotated_at = clock_timestamp(),
    old_digest = CASE WHEN $3::bigint > 0 THEN k.digest END,
    old_until = CASE WHEN $3::bigint > 0 THEN clock_timestamp() + $3::bigint * interval '1 millisecond' END
WHERE k.id = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
RETURNING k.id
