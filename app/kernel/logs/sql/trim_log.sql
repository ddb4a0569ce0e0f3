-- Take out of a log what is too old, and what is above its caps.
--   $1 topic  $2 topic id  $3 cap_records  $4 cap_bytes, 0 for none  $5 whether a full log refuses (then caps take nothing
--   out)  $6 its TTL in ms, 0 for none  $7 most records to take out
-- Answers one row: how many went. Raises undefined_object when the topic was deleted meanwhile.
-- Index: primary key, from earliest_seq on.   The function: functions/trim_log.sql.
SELECT holdfast.trim_log($1::text, $2::integer, $3::bigint, $4::bigint, $5::boolean, $6::bigint, $7::bigint)
