-- What is granted to a user, by action and pattern.   $1 the user's id   Index: grants by user, action and pattern.
SELECT g.id::text AS id, g.user_id::text AS user_id, g.action, g.topic_pattern, g.hides_payloads, g.created_at
FROM holdfast.grants g WHERE g.user_id = $1 ORDER BY g.action, g.topic_pattern
