-- Lock those of some schedules that are due and that nobody else is at, to the end of the transaction.
--   $1 topic: theirs still  $2 names  $3 what time it is; NULL: ask the clock  $4 most rows
-- One row each: as schedule_read, and the time. One that somebody has fired meanwhile is looked at anew, and not due.
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
