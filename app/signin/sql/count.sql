-- How many keys there are, dead ones included, and how many of them are live.   Reads the whole table, which is small.
SELECT count(*) AS kept,
    count(*) FILTER (WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())) AS live
FROM holdfast.api_keys k
