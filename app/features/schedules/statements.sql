-- The statements of schedules, run by store.py.

-- name: read
-- Read a schedule.   $1 name   No row: it does not exist.   Index: primary key.
SELECT s.name, s.topic, s.cron, s.time_zone, s.missed, s.paused, s.next_fire, s.last_fire, s.last_seq, s.fires, s.error_code,
       s.error_text, s.error_at, s.created_at, s.updated_at, s.payload, s.fields::text AS fields
FROM holdfast.schedules s WHERE s.name = $1

-- name: lock
-- Read and lock a schedule.   $1 name   Columns as of read. No row: it does not exist.   Index: primary key.
SELECT s.name, s.topic, s.cron, s.time_zone, s.missed, s.paused, s.next_fire, s.last_fire, s.last_seq, s.fires, s.error_code,
       s.error_text, s.error_at, s.created_at, s.updated_at, s.payload, s.fields::text AS fields
FROM holdfast.schedules s WHERE s.name = $1 FOR UPDATE

-- name: page
-- A page of schedules by name, without their jobs. Index: primary key.
--   $1  prefix of their names
--   $2  only names after this one
--   $3  most rows
--   $4  prefixes of their topics' names; empty for all topics
-- Every character that a name may have sorts before '~'.
SELECT s.name, s.topic, s.cron, s.time_zone, s.missed, s.paused, s.next_fire, s.last_fire, s.last_seq, s.fires, s.error_code,
       s.error_text, s.error_at, s.created_at, s.updated_at
FROM holdfast.schedules s
WHERE s.name >= $1 AND s.name < $1 || '~' AND s.name > $2
  AND ($4::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($4::text[]) AS allowed WHERE starts_with(s.topic || '$', allowed)))
ORDER BY s.name LIMIT $3

-- name: make_lock
-- Create one schedule at a time, as their number is bounded. Held until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.schedules', 0))

-- name: count
-- Count all schedules. Reads the whole index, which is small.
SELECT count(*) FROM holdfast.schedules

-- name: write
-- Create or replace a schedule. Its counts, last job and last error stay. Index: primary key.
--   $1  name
--   $2  topic
--   $3  cron expression
--   $4  time zone
--   $5  missed
--   $6  whether it is paused
--   $7  next_fire, NULL while it is paused
--   $8  payload
--   $9  the record's other fields, as JSON
INSERT INTO holdfast.schedules (name, topic, cron, time_zone, missed, paused, next_fire, due_at, payload, fields)
VALUES ($1, $2, $3, $4, $5, $6, $7::timestamptz, $7::timestamptz, $8, $9::json)
ON CONFLICT (name) DO UPDATE
SET (topic, cron, time_zone, missed, paused, next_fire, due_at, payload, fields, updated_at)
  = (excluded.topic, excluded.cron, excluded.time_zone, excluded.missed, excluded.paused, excluded.next_fire,
     excluded.due_at, excluded.payload, excluded.fields, clock_timestamp())

-- name: delete
-- Delete a schedule. Jobs that it has enqueued stay.   $1 name   Returns its topic. No row: it did not exist.
DELETE FROM holdfast.schedules s WHERE s.name = $1 RETURNING s.topic

-- name: clock
-- The database's time.   Answers one row.
SELECT clock_timestamp()

-- name: due
-- The schedules with the earliest due times.   $1 the time, NULL for the clock's  $2 most rows
-- One row each: name, topic, payload size in bytes, seconds until it is due (0 or less if it is due now).
-- Index: schedules_due, from its start.
SELECT s.name, s.topic, octet_length(s.payload) AS size,
       extract(epoch FROM s.due_at - coalesce($1::timestamptz, clock_timestamp()))::float8 AS seconds
FROM holdfast.schedules s
WHERE s.due_at IS NOT NULL
ORDER BY s.due_at LIMIT $2

-- name: take
-- Lock the due schedules among some, except locked ones. Index: primary key.
--   $1  topic; schedules that have another one by now are left out
--   $2  names
--   $3  the time, NULL for the clock's
--   $4  most rows
-- One row each: the columns of read, and the time. A schedule that another process has just fired is not due any more.
WITH locked AS MATERIALIZED (
    SELECT s.* FROM holdfast.schedules s
    WHERE s.name = ANY ($2::text[]) AND s.topic = $1 AND s.due_at <= coalesce($3::timestamptz, now())
    ORDER BY s.name LIMIT $4::integer FOR UPDATE SKIP LOCKED
)
SELECT s.name, s.topic, s.cron, s.time_zone, s.missed, s.paused, s.next_fire, s.last_fire, s.last_seq, s.fires, s.error_code,
       s.error_text, s.error_at, s.created_at, s.updated_at, s.payload, s.fields::text AS fields,
       coalesce($3::timestamptz, clock_timestamp()) AS at
FROM locked s ORDER BY s.name

-- name: settle
-- Write the outcomes of locked schedules. Index: primary key. Arrays with one element per schedule:
--   $1  names
--   $2  next_fire
--   $3  due_at
--   $4  how many jobs were enqueued
--   $5  last_fire, the time of the last of these
--   $6  last_seq, the seq of the last of these
--   $7  error code, NULL for none: the stored error stays until a job is enqueued
--   $8  error text
UPDATE holdfast.schedules s
SET next_fire = r.next_fire, due_at = r.due_at, fires = s.fires + r.fired,
    last_fire = coalesce(r.last_fire, s.last_fire), last_seq = coalesce(r.last_seq, s.last_seq),
    (error_code, error_text, error_at) = (
        SELECT CASE WHEN r.fired = 0 THEN coalesce(r.code, s.error_code) ELSE r.code END,
               CASE WHEN r.fired = 0 THEN coalesce(r.text, s.error_text) ELSE r.text END,
               CASE WHEN r.code IS NOT NULL THEN clock_timestamp() WHEN r.fired = 0 THEN s.error_at END)
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::bigint[], $5::timestamptz[], $6::bigint[],
            $7::text[], $8::text[]) AS r(name, next_fire, due_at, fired, last_fire, last_seq, code, text)
WHERE s.name = r.name
