-- Delete a batch of a log's records, for good.
--   $1 topic  $2 topic id  $3 up to this seq  $4 only those with this tag, or NULL  $5 only those whose tag starts with
--   this, or NULL  $6, $7 behind this place: a tag and a seq  $8 most records
-- Answers one row: deleted; last_tag, last_seq (where the next batch begins; NULL: nothing was found).
-- Raises undefined_object when the topic was deleted meanwhile.
-- Indexes: primary key, records_tagged.   The function: functions/delete_records.sql.
SELECT d.deleted, d.last_tag, d.last_seq
FROM holdfast.delete_records($1::text, $2::integer, $3::bigint, $4::text, $5::text, $6::text, $7::bigint,
                             $8::integer) d
