-- Change a user; NULL leaves a column as it is.   $1 id  $2 name  $3 hash of another password, which ends all tokens
--   $4 whether they are an admin   Raises unique_violation for a name that is taken.   Index: primary key.
UPDATE holdfast.users u
SET username = coalesce($2, u.username), is_admin = coalesce($4, u.is_admin),
    password_hash = coalesce($3, u.password_hash), epoch = u.epoch + ($3::text IS NOT NULL)::integer,
    updated_at = clock_timestamp()
WHERE u.id = $1 AND u.deleted_at IS NULL
