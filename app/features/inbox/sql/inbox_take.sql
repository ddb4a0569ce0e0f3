-- Take the next rows of the inbox out that nobody has looked at.   $1 topic  $2 most rows
-- One row each, by id: what it is. The caller holds the topic's lock (inbox_lock).   Index: primary key.
WITH next AS MATERIALIZED (
    SELECT u.id FROM holdfast.inbox_unchecked u WHERE u.topic = $1 ORDER BY u.id LIMIT $2::integer
), gone AS (
    DELETE FROM holdfast.inbox_unchecked u USING next n WHERE u.topic = $1 AND u.id = n.id RETURNING u.*
)
SELECT g.id, g.inserted_at, g.payload, g.content_type, g.metadata, g.tag, g.node, g.priority, g.delay_ms, g.run_at,
       g.ttl_ms, g.max_deliveries, g.key, g.tenant, g."group", g.dedupe_id, g.user_id, g.webhook
FROM gone g ORDER BY g.id
