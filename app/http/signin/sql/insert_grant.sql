-- Grant something to a user.   $1 id  $2 the user's id  $3 action  $4 pattern of topics  $5 who grants it
--   $6 whether it hides payloads
-- Answers one row. No row: it was granted before.   Index: grants by user, action and pattern.
INSERT INTO holdfast.grants (id, user_id, action, topic_pattern, created_by, hides_payloads)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (user_id, action, topic_pattern) DO NOTHING
RETURNING id::text AS id, user_id::text AS user_id, action, topic_pattern, hides_payloads, created_at
