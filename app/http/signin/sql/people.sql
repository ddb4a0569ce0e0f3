-- Every user, and what is granted to them.   $1 most rows
-- Answers one row a user: id, name, whether they are an admin, the epoch of their password, and arrays that belong
-- together: actions, patterns, and whether these grants hide payloads.   Reads both tables whole, which are small.
SELECT u.id::text AS id, u.username, u.is_admin, u.epoch,
    coalesce(array_agg(g.action ORDER BY g.id) FILTER (WHERE g.id IS NOT NULL), '{}') AS actions,
    coalesce(array_agg(g.topic_pattern ORDER BY g.id) FILTER (WHERE g.id IS NOT NULL), '{}') AS patterns,
    coalesce(array_agg(g.hides_payloads ORDER BY g.id) FILTER (WHERE g.id IS NOT NULL), '{}') AS hides
FROM holdfast.users u LEFT JOIN holdfast.grants g ON g.user_id = u.id
WHERE u.deleted_at IS NULL
GROUP BY u.id
LIMIT $1
