-- The secret of a topic's webhook.   $1 name  $2 id   No row: it has none, or there is no such topic any more.
SELECT s.secret FROM holdfast.topics t JOIN holdfast.webhook_secrets s ON s.topic_id = t.id
WHERE t.name = $1 AND t.id = $2
