-- Keep the secret of a topic's webhook, or forget it where the configuration has none.
--   $1 name  $2 the secret; NULL: the one that is kept   Indexes: primary keys.
WITH topic AS (
    SELECT t.id, t.webhook->>'secret' AS mask FROM holdfast.topics t WHERE t.name = $1
), gone AS (
    DELETE FROM holdfast.webhook_secrets s USING topic t WHERE s.topic_id = t.id AND t.mask IS NULL
)
INSERT INTO holdfast.webhook_secrets (topic_id, secret) SELECT t.id, $2::text FROM topic t WHERE $2::text IS NOT NULL
ON CONFLICT (topic_id) DO UPDATE SET secret = EXCLUDED.secret
