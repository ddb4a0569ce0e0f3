-- name: any_job
-- Does a topic have any live job?   $1 name   Index: primary key.
SELECT EXISTS (SELECT 1 FROM holdfast.jobs j WHERE j.topic = $1 AND j.state::text NOT IN ('failed', 'expired'))

-- name: any_record
-- Does a log have any record within its age limit?   $1 name  $2 id   Indexes: primary keys.
SELECT EXISTS (
    SELECT 1 FROM holdfast.topics t
    CROSS JOIN LATERAL (
        SELECT l.head_seq, l.earliest_seq FROM holdfast.log_state l
        WHERE l.topic = $1 AND l.topic_id = $2::integer ORDER BY l.version DESC LIMIT 1
    ) s
    JOIN LATERAL (
        SELECT 1 FROM holdfast.records r
        WHERE r.topic = $1 AND r.seq >= s.earliest_seq AND r.seq <= s.head_seq
          AND (t.ttl_ms = 0 OR r.created_at >= now() - t.ttl_ms * interval '1 ms')
        ORDER BY r.seq LIMIT 1
    ) r ON true
    WHERE t.name = $1
)

-- name: census
-- How many topics there are, by type and durability.   One row each: type, durability, topics.
SELECT type, durability, count(*) AS topics FROM holdfast.topics GROUP BY type, durability

-- name: closing
-- How long until no process takes new jobs for a drained topic?   $1 name  $2 seconds after which all processes know
-- One row: in how many ms, 0 if they all know; how many rows of the inbox are still unchecked, up to 10,000.
-- No row: there is no such topic, or it is not drained.   Index: primary keys.
SELECT
    greatest(0, ceil(extract(epoch FROM t.drained_at - clock_timestamp()) * 1000 + $2::double precision * 1000))::bigint AS closes_in_ms,
    (SELECT count(*) FROM (SELECT FROM holdfast.inbox_unchecked u WHERE u.topic = t.name LIMIT 10000) x) AS unchecked
FROM holdfast.topics t
WHERE t.name = $1 AND t.draining

-- name: configured
-- A page of the queues that were configured, by name.
--   $1  names after this one
--   $2  most rows
--   $3  only names that start with one of these; empty for all
-- Index: primary key.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t
WHERE t.name > $1 AND t.type = 'queue' AND t.configured
  AND ($3::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($3::text[]) AS allowed WHERE starts_with(t.name || '$', allowed)))
ORDER BY t.name LIMIT $2

-- name: control
-- Pause, resume or drain a topic whose row is locked in this transaction.
--   $1  name
--   $2  paused
--   $3  paused tenants
--   $4  whether it is draining; keeps the time since when
UPDATE holdfast.topics t
SET paused = $2::boolean, paused_tenants = $3::text[], draining = $4::boolean,
    drained_at = CASE WHEN $4 THEN coalesce(t.drained_at, clock_timestamp()) END, updated_at = clock_timestamp(),
    version = t.version + 1
WHERE t.name = $1

-- name: controlled
-- Lock a topic's row, and read whether it is paused or draining.   $1 name   No row: there is no such topic.
SELECT t.type, t.paused, t.paused_tenants, t.draining FROM holdfast.topics t WHERE t.name = $1 FOR UPDATE

-- name: count
-- How many topics there are.
SELECT count(*) FROM holdfast.topics

-- name: create_sequence
-- Create the sequence of a topic.   $1 topic id
SELECT holdfast.create_topic_sequence($1)

-- name: database
-- A unique name for this database: the system identifier of its cluster, and its oid.
SELECT c.system_identifier || '.' || d.oid AS name
FROM pg_control_system() c JOIN pg_database d ON d.datname = current_database()

-- name: delete
-- Delete a topic with all its contents. Its sequence must have been dropped, and a log's lock be held, so that nothing
-- can be added.   $1 name   Answers one row: how many jobs were deleted.
WITH jobs AS (
    DELETE FROM holdfast.jobs WHERE topic = $1 RETURNING topic_id, seq, deliveries, lease_id, node
), events AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node)
    SELECT $1, topic_id, seq, 'deleted', deliveries, lease_id, node FROM jobs
), records AS (
    DELETE FROM holdfast.records WHERE topic = $1
), log AS (
    DELETE FROM holdfast.log_state WHERE topic = $1
), keys AS (
    DELETE FROM holdfast.idempotency WHERE topic = $1
), dedupe AS (
    DELETE FROM holdfast.dedupe d USING holdfast.topics t WHERE t.name = $1 AND d.topic_id = t.id
), lanes AS (
    DELETE FROM holdfast.lanes WHERE topic = $1
), schemas AS (
    DELETE FROM holdfast.topic_schemas s USING holdfast.topics t WHERE t.name = $1 AND s.topic_id = t.id
), secrets AS (
    DELETE FROM holdfast.webhook_secrets s USING holdfast.topics t WHERE t.name = $1 AND s.topic_id = t.id
), sqs AS (
    DELETE FROM holdfast.sqs_queues s USING holdfast.topics t WHERE t.name = $1 AND s.topic_id = t.id
), topic AS (
    DELETE FROM holdfast.topics WHERE name = $1
)
SELECT count(*) FROM jobs

-- name: drop_reads
-- Forget when a deleted topic was used.   $1 its id   Index: primary key.
DELETE FROM holdfast.topic_reads r WHERE r.topic_id = $1::integer

-- name: drop_sequence
-- Drop a topic's sequence. Waits for every transaction that has drawn from it, and blocks new ones.   $1 topic id
SELECT holdfast.drop_topic_sequence($1)

-- name: drop_tallies
-- Delete a topic's counts, groups and freed groups.   $1 topic id   Indexes: primary keys.
-- Runs after its jobs are deleted, in a later statement: verbs for which their deletion waited have added tallies by
-- then. Locks tallies in the same order as a fold.
WITH over AS (
    DELETE FROM holdfast.groups WHERE topic_id = $1
), freed AS (
    DELETE FROM holdfast.freed_groups WHERE topic_id = $1
), picked AS MATERIALIZED (
    SELECT t.ctid AS tid FROM holdfast.tallies t WHERE t.topic_id = $1 ORDER BY t.id FOR UPDATE
)
DELETE FROM holdfast.tallies t USING picked p WHERE t.ctid = p.tid

-- name: get
-- A topic's row, and the oid of its sequence.   $1 name   No row: there is no such topic.
-- The sequence is looked up by its name, which has the topic's id: the oid changes when a backup is restored.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t WHERE t.name = $1

-- name: keep_defaults
-- Store the service's defaults for topics, for users who write in SQL.   One row, written if it differs.
--   $1  TTL in ms, 0 for none
--   $2  max_retries
--   $3  dlq_threshold
UPDATE holdfast.defaults SET ttl_ms = $1, max_retries = $2, dlq_threshold = $3
WHERE (ttl_ms, max_retries, dlq_threshold) IS DISTINCT FROM ($1, $2, $3)

-- name: keep_schema
-- Set or remove a topic's schema. The topic's row must be locked or new.
--   $1  topic id
--   $2  format, NULL to remove the schema
--   $3  schema, NULL to remove it
-- Answers one row: version and updated_at as they are now, and the version before, NULL if there was none. No row:
-- nothing changed.   Indexes: primary keys.
WITH given AS (
    SELECT $1::integer AS topic_id, $2::text AS format, $3::text AS schema
), was AS (
    SELECT t.schema_version FROM holdfast.topics t WHERE t.id = $1::integer
), kept AS (
    INSERT INTO holdfast.topic_schemas AS s (topic_id, format, schema)
    SELECT g.topic_id, g.format, g.schema FROM given g CROSS JOIN was
    WHERE g.schema IS NOT NULL OR was.schema_version IS NOT NULL
    ON CONFLICT (topic_id) DO UPDATE
    SET format = EXCLUDED.format, schema = EXCLUDED.schema, version = s.version + 1, updated_at = clock_timestamp()
    WHERE (s.format, s.schema) IS DISTINCT FROM (EXCLUDED.format, EXCLUDED.schema)
    RETURNING s.topic_id, s.version, s.updated_at, s.schema
), marked AS (
    UPDATE holdfast.topics t
    SET schema_version = CASE WHEN k.schema IS NULL THEN NULL ELSE k.version END,
        version = t.version + 1, updated_at = clock_timestamp()
    FROM kept k WHERE t.id = k.topic_id
)
SELECT k.version, k.updated_at, was.schema_version AS before FROM kept k CROSS JOIN was

-- name: keep_secret
-- Store the secret of a topic's webhook, or delete it if the configuration has none.
--   $1 name  $2 the secret; NULL keeps the stored one   Indexes: primary keys.
WITH topic AS (
    SELECT t.id, t.webhook->>'secret' AS mask FROM holdfast.topics t WHERE t.name = $1
), gone AS (
    DELETE FROM holdfast.webhook_secrets s USING topic t WHERE s.topic_id = t.id AND t.mask IS NULL
)
INSERT INTO holdfast.webhook_secrets (topic_id, secret) SELECT t.id, $2::text FROM topic t WHERE $2::text IS NOT NULL
ON CONFLICT (topic_id) DO UPDATE SET secret = EXCLUDED.secret

-- name: keep_uses
-- Store when topics were last read and written to. Times never go back.
--   $1  their ids
--   $2  when they were read, in ms since 1970 by the caller's clock; NULL if not
--   $3  when they were written to, likewise
--   $4  the caller's clock now, in ms
-- A clock that is off by less than a second counts as right, so that times which were shown before stay the same.
-- Skips deleted topics: the lock on a topic's row makes its deletion wait.
INSERT INTO holdfast.topic_reads AS u (topic_id, read_at, written_at)
SELECT live.id, to_timestamp(live.read_ms / 1000.0) + clock.off_by, to_timestamp(live.written_ms / 1000.0) + clock.off_by
FROM
    (
        SELECT t.id, n.read_ms, n.written_ms
        FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS n(id, read_ms, written_ms)
        JOIN holdfast.topics t ON t.id = n.id ORDER BY t.id FOR KEY SHARE OF t
    ) live,
    (
        SELECT CASE WHEN c.off_by NOT BETWEEN '-1 s' AND '1 s' THEN c.off_by ELSE '0' END AS off_by
        FROM (SELECT clock_timestamp() - to_timestamp($4::bigint / 1000.0) AS off_by) c
    ) clock
ON CONFLICT (topic_id) DO UPDATE
SET read_at = greatest(u.read_at, excluded.read_at), written_at = greatest(u.written_at, excluded.written_at)

-- name: last_uses
-- When topics were last read and written to, in ms since 1970; NULL: never.   $1 their ids
-- No row for a topic that was neither read nor written to.   Index: primary key.
SELECT r.topic_id, (date_part('epoch', r.read_at) * 1000)::bigint AS read_ms,
       (date_part('epoch', r.written_at) * 1000)::bigint AS written_ms
FROM holdfast.topic_reads r WHERE r.topic_id = ANY ($1::integer[])

-- name: lock
-- Lock a topic's row before its deletion.   $1 name
-- Answers its id, its type, and the whole row as JSON. No row: there is no such topic.
SELECT t.id, t.type, to_json(t)::text AS before FROM holdfast.topics t WHERE t.name = $1 FOR UPDATE

-- name: lock_log
-- Wait for appends to a log that are under way, and block new ones until this transaction ends.   $1 name  $2 id
SELECT holdfast.lock_log($1, $2)

-- name: names_of
-- The names of the topics with these ids.   $1 ids
-- One row per topic that exists: id and name.   Index: topics_id_key.
SELECT t.id, t.name FROM unnest($1::integer[]) AS given(id) JOIN holdfast.topics t ON t.id = given.id

-- name: overdue
-- Logs with records that are too old, or with more records than their caps.   $1 most logs
-- One row per log, as in get.   Indexes: primary keys.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence
FROM holdfast.topics t
CROSS JOIN LATERAL (
    SELECT l.head_seq, l.earliest_seq, l.count, l.bytes FROM holdfast.log_state l
    WHERE l.topic = t.name AND l.topic_id = t.id ORDER BY l.version DESC LIMIT 1
) s
LEFT JOIN LATERAL (
    SELECT r.created_at FROM holdfast.records r
    WHERE t.ttl_ms > 0 AND r.topic = t.name AND r.seq >= s.earliest_seq AND r.seq <= s.head_seq
    ORDER BY r.seq LIMIT 1
) first ON true
WHERE t.type = 'log' AND (t.ttl_ms > 0 OR (t.discard = 'old' AND t.cap_records + t.cap_bytes > 0))
  AND (first.created_at < now() - t.ttl_ms * interval '1 ms'
       OR (t.discard = 'old' AND ((t.cap_records > 0 AND s.count > t.cap_records)
                                  OR (t.cap_bytes > 0 AND s.bytes > t.cap_bytes))))
ORDER BY t.name LIMIT $1::integer

-- name: page
-- A page of topics by name.
--   $1  name prefix
--   $2  names after this one
--   $3  most rows
--   $4  only names that start with one of these; empty for all
-- Every character that a name can have sorts before '~'.   Index: primary key.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t
WHERE t.name >= $1 AND t.name < $1 || '~' AND t.name > $2
  AND ($4::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($4::text[]) AS allowed WHERE starts_with(t.name || '$', allowed)))
ORDER BY t.name LIMIT $3

-- name: some_of
-- The topics that have series of their own in the metrics, at most $2: the ones in $1 that exist, then others by name.
--   $1 names  $2 most rows
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t
ORDER BY t.name = ANY ($1::text[]) DESC, t.name LIMIT $2

-- name: webhook_secret
-- The secret of a topic's webhook.   $1 name  $2 id   No row: it has none, or the topic was deleted.
SELECT s.secret FROM holdfast.topics t JOIN holdfast.webhook_secrets s ON s.topic_id = t.id
WHERE t.name = $1 AND t.id = $2
