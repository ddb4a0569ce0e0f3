-- A page of users by name, without hashes.   $1 names after this one  $2 most rows   Index: users_username.
SELECT u.id::text AS id, u.username, u.is_admin, u.created_at, u.updated_at
FROM holdfast.users u WHERE u.username > $1 AND u.deleted_at IS NULL
ORDER BY u.username LIMIT $2
