-- Take a grant back.   $1 id  $2 the user's id
-- Answers one row: the grant. No row: this user has no such grant.   Index: primary key.
DELETE FROM holdfast.grants g WHERE g.id = $1 AND g.user_id = $2
RETURNING g.id::text AS id, g.user_id::text AS user_id, g.action, g.topic_pattern, g.hides_payloads, g.created_at
