-- A schedule as it is.   $1 name   No row: there is none.   Index: primary key.
SELECT s.name, s.topic, s.cron, s.time_zone, s.missed, s.paused, s.next_fire, s.last_fire, s.last_seq, s.fires, s.error_code,
       s.error_text, s.error_at, s.created_at, s.updated_at, s.payload, s.fields::text AS fields
FROM holdfast.schedules s WHERE s.name = $1
