-- Keep a new user.   $1 id  $2 name  $3 the password's hash  $4 whether they are an admin  $5 who made them
-- Answers one row: the id. No row: the name is taken.   Index: users_username.
INSERT INTO holdfast.users (id, username, password_hash, is_admin, created_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (username) WHERE deleted_at IS NULL DO NOTHING
RETURNING id
