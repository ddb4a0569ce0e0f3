-- name: any_job
-- Does a topic hold any live job?   $1 name   Index: primary key.
SELECT EXISTS (SELECT 1 FROM holdfast.jobs j WHERE j.topic = $1 AND j.state::text NOT IN ('failed', 'expired'))

-- name: any_record
-- Does a log hold any record that is not too old?   $1 name  $2 id   Indexes: primary keys.
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
-- How many topics there are of each kind.   One row each: type, durability, topics.
SELECT type, durability, count(*) AS topics FROM holdfast.topics GROUP BY type, durability

-- name: closing
-- How long until nobody can take in any more jobs of a drained topic?   $1 name  $2 seconds from its drain on
-- One row: in how many ms, 0 once it is so; rows of the inbox that were taken in and wait for a look, up to 10,000.
-- No row: there is no such topic, or it is not drained.   Index: primary keys.
SELECT
    greatest(0, ceil(extract(epoch FROM t.drained_at - clock_timestamp()) * 1000 + $2::double precision * 1000))::bigint AS closes_in_ms,
    (SELECT count(*) FROM (SELECT FROM holdfast.inbox_unchecked u WHERE u.topic = t.name LIMIT 10000) x) AS unchecked
FROM holdfast.topics t
WHERE t.name = $1 AND t.draining

-- name: configured
-- A page of the queues that somebody has configured, by name.   $1 names after this one  $2 most rows
--   $3 only names that start with one of these; empty for all   Index: primary key.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t
WHERE t.name > $1 AND t.type = 'queue' AND t.configured
  AND ($3::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($3::text[]) AS allowed WHERE starts_with(t.name || '$', allowed)))
ORDER BY t.name LIMIT $2

-- name: control
-- Pause, resume or drain a topic whose row the transaction has locked.
--   $1 name  $2 paused  $3 tenants that are paused  $4 draining, since when it began
UPDATE holdfast.topics t
SET paused = $2::boolean, paused_tenants = $3::text[], draining = $4::boolean,
    drained_at = CASE WHEN $4 THEN coalesce(t.drained_at, clock_timestamp()) END, updated_at = clock_timestamp(),
    version = t.version + 1
WHERE t.name = $1

-- name: controlled
-- How a topic is held up, and lock its row.   $1 name   No row: there is no such topic.
SELECT t.type, t.paused, t.paused_tenants, t.draining FROM holdfast.topics t WHERE t.name = $1 FOR UPDATE

-- name: count
-- How many topics there are.
SELECT count(*) FROM holdfast.topics

-- name: create_sequence
-- Make the sequence that gives a topic's seqs.   $1 topic id
SELECT holdfast.create_topic_sequence($1)

-- name: database
-- What tells this database from every other: the cluster's identifier, and the database's own in it.
SELECT c.system_identifier || '.' || d.oid AS name
FROM pg_control_system() c JOIN pg_database d ON d.datname = current_database()

-- name: delete
-- Delete a topic and all that it holds, once its sequence is gone and, of a log, its lock is held: nothing can be added
-- any more.   $1 name   Answers one row: how many jobs went with it.
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
), topic AS (
    DELETE FROM holdfast.topics WHERE name = $1
)
SELECT count(*) FROM jobs

-- name: drop_reads
-- Forget when a topic that is deleted was read.   $1 its id   Index: primary key.
DELETE FROM holdfast.topic_reads r WHERE r.topic_id = $1::integer

-- name: drop_sequence
-- Drop a topic's sequence. Waits for every transaction that has drawn from it, and lets none draw any more.   $1 topic id
SELECT holdfast.drop_topic_sequence($1)

-- name: drop_tallies
-- Delete a topic's counts, its groups, and notes of their jobs that have gone.   $1 topic id   Indexes: primary keys.
-- After its jobs are gone, in a later statement: verbs that their deletion waited for have added theirs by then.
-- Who folds locks tallies in the same order.
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
-- The sequence is named by the topic's id; its oid is looked up, since a restored backup has others.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t WHERE t.name = $1

-- name: keep_defaults
-- Keep what the service gives a topic that was left to it, for those who write in SQL.
--   $1 TTL in ms, 0 for none  $2 max_retries  $3 dlq_threshold   One row, written where it differs.
UPDATE holdfast.defaults SET ttl_ms = $1, max_retries = $2, dlq_threshold = $3
WHERE (ttl_ms, max_retries, dlq_threshold) IS DISTINCT FROM ($1, $2, $3)

-- name: keep_schema
-- Give a topic a schema, or take its schema back. The caller has locked the topic's row, or made it.
--   $1 topic id  $2 format  $3 schema; both NULL: none from now on
-- Answers one row: version and updated_at as they are now, and the version that counted before, NULL for none. Without
-- a row, nothing has changed: the topic has this schema already, or has none to be taken back.   Indexes: primary keys.
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
-- Keep the secret of a topic's webhook, or forget it where the configuration has none.
--   $1 name  $2 the secret; NULL: the one that is kept   Indexes: primary keys.
WITH topic AS (
    SELECT t.id, t.webhook->>'secret' AS mask FROM holdfast.topics t WHERE t.name = $1
), gone AS (
    DELETE FROM holdfast.webhook_secrets s USING topic t WHERE s.topic_id = t.id AND t.mask IS NULL
)
INSERT INTO holdfast.webhook_secrets (topic_id, secret) SELECT t.id, $2::text FROM topic t WHERE $2::text IS NOT NULL
ON CONFLICT (topic_id) DO UPDATE SET secret = EXCLUDED.secret

-- name: keep_uses
-- Keep when topics were last read and written to.
--   $1 their ids  $2 when they were read, $3 written to, in ms since 1970 by the caller's clock, NULL for not; one each
--   $4 its ms now
-- A clock that is off by less than a second counts as right, so that what was shown before stays what it was. Never back.
-- A topic that was deleted is left out: the lock on its row keeps a deletion waiting.
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
-- When topics were last read and written to, in ms since 1970.   $1 their ids
-- NULL: never. No row: neither.   Index: primary key.
SELECT r.topic_id, (date_part('epoch', r.read_at) * 1000)::bigint AS read_ms,
       (date_part('epoch', r.written_at) * 1000)::bigint AS written_ms
FROM holdfast.topic_reads r WHERE r.topic_id = ANY ($1::integer[])

-- name: lock
-- Lock a topic's row for its deletion.   $1 name
-- Answers its id, its type and the whole row as JSON; no row: there is no such topic.
SELECT t.id, t.type, to_json(t)::text AS before FROM holdfast.topics t WHERE t.name = $1 FOR UPDATE

-- name: lock_log
-- Wait for the appends to a log that are under way, and let none begin before this transaction ends.   $1 name  $2 id
SELECT holdfast.lock_log($1, $2)

-- name: names_of
-- The names of the topics with these ids.   $1 ids
-- One row a topic: id and name. One that there is not any more is left out.   Index: topics_id_key.
SELECT t.id, t.name FROM unnest($1::integer[]) AS given(id) JOIN holdfast.topics t ON t.id = given.id

-- name: overdue
-- Logs that have something to take out: a first record that is too old, or more than their caps.   $1 most logs
-- One row a log: its row, as get answers it.   Indexes: primary keys.
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
-- A page of topics by name.   $1 name prefix  $2 names after this one  $3 most rows
--   $4 only names that start with one of these; empty for all   Index: primary key.
-- Every character that a name may have sorts before '~'.
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t
WHERE t.name >= $1 AND t.name < $1 || '~' AND t.name > $2
  AND ($4::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($4::text[]) AS allowed WHERE starts_with(t.name || '$', allowed)))
ORDER BY t.name LIMIT $3

-- name: some_of
-- The topics that are shown one by one, $2 at most: first those of $1 that exist, then others by name.
--   $1 names  $2 most rows
SELECT t.*, to_regclass('holdfast.seq_' || t.id)::oid AS sequence FROM holdfast.topics t
ORDER BY t.name = ANY ($1::text[]) DESC, t.name LIMIT $2

-- name: webhook_secret
-- The secret of a topic's webhook.   $1 name  $2 id   No row: it has none, or there is no such topic any more.
SELECT s.secret FROM holdfast.topics t JOIN holdfast.webhook_secrets s ON s.topic_id = t.id
WHERE t.name = $1 AND t.id = $2
