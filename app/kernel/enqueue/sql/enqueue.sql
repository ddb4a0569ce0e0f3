-- Enqueue jobs in the given order, all or none.
--   $1   topic
--   $2   topic id
--   $3   oid of the topic's sequence
--   $4   payloads
--   $5   tags
--   $6   producers' nodes
--   $7   metadata
--   $8   tenants
--   $9   priorities
--   $10  delays in ms
--   $11  run_at
--   $12  TTLs in ms
--   $13  max_deliveries
--   $14  content types; NULL is application/json
--   $15  the topic's TTL in ms, 0 for none
-- All arrays after $4 can be shorter than it, or empty: unnest fills them up with NULL, the default.
-- Answers one row: the seqs, in the order of $4. Raises undefined_object if the topic was deleted meanwhile.
-- nextval locks the sequence until the end of the transaction, so the topic's deletion waits.
SELECT e.seqs
FROM holdfast.enqueue_plain($1::text, $2::integer, $3::oid, $4::bytea[], $5::text[], $6::text[], $7::json[],
                            $8::text[], $9::smallint[], $10::bigint[], $11::timestamptz[], $12::bigint[],
                            $13::integer[], $14::text[], $15::bigint) AS e(seqs)
