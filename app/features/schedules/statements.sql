-- The statements of schedules. store.py has what they answer.

-- name: read
-- A schedule as it is.   $1 name   No row: there is none.   Index: primary key.
SELECT s.name, s.topic, s.cron, s.time_zone, s.missed, s.paused, s.next_fire, s.last_fire, s.last_seq, s.fires, s.error_code,
       s.error_text, s.error_at, s.created_at, s.updated_at, s.payload, s.fields::text AS fields
FROM holdfast.schedules s WHERE s.name = $1

-- name: lock
-- Lock a schedule to the end of the transaction.   $1 name
-- Answers one row, as read; no row: there is none.   Index: primary key.
SELECT s.name, s.topic, s.cron, s.time_zone, s.missed, s.paused, s.next_fire, s.last_fire, s.last_seq, s.fires, s.error_code,
       s.error_text, s.error_at, s.created_at, s.updated_at, s.payload, s.fields::text AS fields
FROM holdfast.schedules s WHERE s.name = $1 FOR UPDATE

-- name: page
-- A page of schedules by name, without what they put in.   $1 name prefix  $2 names after this one  $3 most rows
--   $4 only of topics whose names start with one of these; empty for all   Index: primary key.
-- Every character that a name may have sorts before '~'.
SELECT s.name, s.topic, s.cron, s.time_zone, s.missed, s.paused, s.next_fire, s.last_fire, s.last_seq, s.fires, s.error_code,
       s.error_text, s.error_at, s.created_at, s.updated_at
FROM holdfast.schedules s
WHERE s.name >= $1 AND s.name < $1 || '~' AND s.name > $2
  AND ($4::text[] = '{}' OR EXISTS (SELECT 1 FROM unnest($4::text[]) AS allowed WHERE starts_with(s.topic || '$', allowed)))
ORDER BY s.name LIMIT $3

-- name: make_lock
-- Let one schedule be made at a time, to the end of the transaction: their number is bounded.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.schedules', 0))

-- name: count
-- How many schedules there are. Reads the whole index, which is small.
SELECT count(*) FROM holdfast.schedules

-- name: write
-- Keep a schedule as it is now wanted, made anew if it is absent.
--   $1 name  $2 topic  $3 cron  $4 time zone  $5 missed  $6 whether it is paused  $7 next_fire, NULL while it is
--   $8 payload  $9 the record's other fields, as JSON
-- What it has done so far stays.   Index: primary key.
INSERT INTO holdfast.schedules (name, topic, cron, time_zone, missed, paused, next_fire, due_at, payload, fields)
VALUES ($1, $2, $3, $4, $5, $6, $7::timestamptz, $7::timestamptz, $8, $9::json)
ON CONFLICT (name) DO UPDATE
SET (topic, cron, time_zone, missed, paused, next_fire, due_at, payload, fields, updated_at)
  = (excluded.topic, excluded.cron, excluded.time_zone, excluded.missed, excluded.paused, excluded.next_fire,
     excluded.due_at, excluded.payload, excluded.fields, clock_timestamp())

-- name: delete
-- Forget a schedule. What it has put in stays.   $1 name   Answers its topic; no row: there was none.
DELETE FROM holdfast.schedules s WHERE s.name = $1 RETURNING s.topic

-- name: clock
-- What time it is, by the database's clock.
SELECT clock_timestamp()

-- name: due
-- The schedules that are due first.   $1 what time it is; NULL: ask the clock  $2 most rows
-- One row each: name, topic, the payload's size in bytes, and in how many seconds it is due, at most 0 if it is.
-- Index: schedules_due, from its start.
SELECT s.name, s.topic, octet_length(s.payload) AS size,
       extract(epoch FROM s.due_at - coalesce($1::timestamptz, clock_timestamp()))::float8 AS seconds
FROM holdfast.schedules s
WHERE s.due_at IS NOT NULL
ORDER BY s.due_at LIMIT $2

-- name: take
-- Lock those of some schedules that are due and that nobody else is at, to the end of the transaction.
--   $1 topic: theirs still  $2 names  $3 what time it is; NULL: ask the clock  $4 most rows
-- One row each: as read, and the time. One that somebody has fired meanwhile is looked at anew, and not due.
-- Index: primary key.
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
-- Note what became of schedules that the caller has locked, one each of:
--   $1 names  $2 next_fire  $3 due_at  $4 how many jobs were made  $5 last_fire and  $6 last_seq: of the last of these
--   $7 the code and  $8 the text of the error, NULL for none: then the last one stays until a job is made
-- Index: primary key.
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
