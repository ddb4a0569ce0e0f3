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
