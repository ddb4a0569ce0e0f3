-- Revoke a key, for good.   $1 id
-- Answers one row: its id. No row: there is no such key, or it was revoked before.   Index: primary key.
UPDATE holdfast.api_keys k SET revoked_at = clock_timestamp() WHERE k.id = $1 AND k.revoked_at IS NULL RETURNING k.id
