-- Since when a topic has a past: since its events are shown, or since it was made.   $1 topic  $2 topic id
-- One row: in ms since 1970; none for a topic that is gone.   Index: primary key of topics.
SELECT (date_part('epoch', greatest(f.first_at, t.created_at)) * 1000)::bigint AS begins_ms
FROM holdfast.topics t CROSS JOIN LATERAL holdfast.events_from(t.id) AS f(first_at)
WHERE t.name = $1 AND t.id = $2::integer
