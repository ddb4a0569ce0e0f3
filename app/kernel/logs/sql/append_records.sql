-- Append the batches of several callers to a log, one after the other, each whole or not at all.
--   $1   topic
--   $2   topic id
--   $3   payloads
--   $4   tags; can be shorter, filled up with NULL
--   $5   nodes; likewise
--   $6   metadata; likewise
--   Callers:
--   $7   how many of the records are theirs
--   $8   the bytes of their payloads and metadata
--   $9   idempotency keys, or NULL
--   $10  cap_records, 0 for none
--   $11  cap_bytes, 0 for none
--   $12  whether a full log refuses
--   $13  the topic's TTL in ms, 0 for none
--   $14  how many ms keys are remembered
-- Answers one row: outcomes (written, deduped or full) with the callers' first and last seqs; head_seq; earliest_seq.
-- Appends to one log run one after the other until commit, so seqs are contiguous and become visible in order. Raises
-- undefined_object if the topic was deleted meanwhile.   The function: functions/records.sql.
SELECT a.outcomes, a.firsts, a.lasts, a.head_seq, a.earliest_seq
FROM holdfast.append_records($1::text, $2::integer, $3::bytea[], $4::text[], $5::text[], $6::json[], $7::integer[],
                             $8::bigint[], $9::text[], $10::bigint, $11::bigint, $12::boolean, $13::bigint,
                             $14::bigint) a
