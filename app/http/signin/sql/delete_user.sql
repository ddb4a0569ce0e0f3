-- Delete a user, with all that was granted to them, and their saved views; the row stays, without the password.   $1 id
-- Index: primary key, and that of the grants by user.
WITH gone AS (DELETE FROM holdfast.grants g WHERE g.user_id = $1),
     views AS (DELETE FROM holdfast.saved_views v WHERE v.owner = $1::uuid::text)
UPDATE holdfast.users u SET deleted_at = clock_timestamp(), password_hash = NULL
WHERE u.id = $1 AND u.deleted_at IS NULL
