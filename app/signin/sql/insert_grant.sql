-- Grant something to a user.   $1 id  $2 the user's id  $3 action  $4 pattern of topics  $5 who grants it
-- Answers one row. No row: it was granted before.   Index: grants by user, action and pattern.
INSERT INTO holdfast.grants (id, user_id, action, topic_pattern, created_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (user_id, action, topic_pattern) DO NOTHING
RETURNING id::text AS id, user_id::text AS user_id, action, topic_pattern, created_at
