-- Hold a user, to the end of the transaction: a change of them waits for another one.   $1 id
-- No row: there is no such user, or they were deleted.   Index: primary key.
SELECT u.id::text AS id, u.username, u.is_admin, u.created_at, u.updated_at
FROM holdfast.users u WHERE u.id = $1 AND u.deleted_at IS NULL FOR UPDATE
