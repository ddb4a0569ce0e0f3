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
