-- How many keys and users there are, dead ones included, and how many keys and how many users are live.
-- Reads both tables whole, which are small.
SELECT k.kept + u.kept AS kept, k.live, u.live AS users
FROM (
    SELECT count(*) AS kept,
        count(*) FILTER (WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())) AS live
    FROM holdfast.api_keys k
) k, (
    SELECT count(*) AS kept, count(*) FILTER (WHERE u.deleted_at IS NULL) AS live FROM holdfast.users u
) u
