-- A user who wants to sign in.   $1 name   Answers id, epoch and the password's hash. No row: there is no such user.
-- Index: users_username.
SELECT u.id::text AS id, u.epoch, u.password_hash FROM holdfast.users u WHERE u.username = $1 AND u.deleted_at IS NULL
