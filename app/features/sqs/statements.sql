-- name: get
-- Read a queue's attributes and tags that topics don't have.   $1 topic id   Index: primary key.
SELECT q.attributes::text, q.tags::text, q.created_at, q.updated_at, q.purged_at FROM holdfast.sqs_queues q
WHERE q.topic_id = $1::integer

-- name: put
-- Store a queue's attributes and tags that topics don't have.
--   $1  topic id
--   $2  attributes, an object of strings
--   $3  tags, an object of strings
INSERT INTO holdfast.sqs_queues (topic_id, attributes, tags) VALUES ($1::integer, $2::text::jsonb, $3::text::jsonb)
ON CONFLICT (topic_id) DO UPDATE
SET attributes = excluded.attributes, tags = excluded.tags, updated_at = clock_timestamp()

-- name: purge
-- Record a purge, unless the last one was within a minute.   $1 topic id   Answers true if it was recorded.
INSERT INTO holdfast.sqs_queues (topic_id, purged_at) VALUES ($1::integer, clock_timestamp())
ON CONFLICT (topic_id) DO UPDATE SET purged_at = clock_timestamp()
WHERE sqs_queues.purged_at IS NULL OR sqs_queues.purged_at < now() - interval '1 minute'
RETURNING true

-- name: sources
-- Names of queues whose dead letters go to a topic.
--   $1  topic
--   $2  names after this one
--   $3  most rows
--   $4  only names that start with one of these; empty for all
SELECT t.name FROM holdfast.topics t
WHERE t.dead_letter = $1 AND t.on_exhausted = 'dead_letter' AND t.name > $2
  AND ($4::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($4::text[]) AS allowed WHERE starts_with(t.name || '$', allowed)))
ORDER BY t.name LIMIT $3::integer

-- name: first_claims
-- When jobs were first claimed.   $1 topic id  $2 seqs
-- One row per claimed job: seq, at_ms (since 1970). Reads 14 days, the longest retention in SQS.   Index: lease_events_read.
SELECT s.seq, (date_part('epoch', min(e.at)) * 1000)::bigint AS at_ms
FROM unnest($2::bigint[]) AS s(seq)
CROSS JOIN LATERAL holdfast.job_events($1::integer, s.seq, now() - interval '14 days', 1000) e
WHERE e.event = 'claimed' GROUP BY s.seq
