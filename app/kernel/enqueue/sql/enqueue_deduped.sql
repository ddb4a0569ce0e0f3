-- Put jobs of several callers into a queue, but for what was enqueued before: a record whose dedupe id is known within
-- (tenant, group), and a caller's whole batch whose idempotency key is. What is left goes on as in enqueue_keyed, all of
-- it or none.
--   $1 topic  $2 topic id  $3 oid of the topic's sequence  $4 payloads
--   $5 tags  $6 producers' nodes  $7 metadata  $8 tenants  $9 priorities  $10 delays in ms  $11 run_at  $12 TTLs in ms
--   $13 max_deliveries  $14 content types; $5 to $14 as in enqueue  $15 keys, one for each payload, or NULL
--   $16 the topic's TTL in ms, 0 for none  $17 whether deliveries run out here  $18 the topic's max_deliveries
--   $19 groups  $20 dedupe ids, or NULL; both as $5 to $14  $21 for how many ms ids are kept
--   for each caller, in order:  $22 how many of the records  $23 its batch's key, or NULL  $24 for how many ms keys are kept
-- Answers one row for each caller, in order: seqs, updated and duplicate, in the order of its records; head_seq; ready,
-- due and touched of all callers in the first row, and 0 in the others; repeated: nothing of its batch was written, all
-- are duplicates, and the seqs, of which there may be more or fewer, and the head are those of then.
-- Waits for others that write the same ids or keys, up to their commits. Raises undefined_object when the topic was
-- deleted meanwhile, and serialization_failure.
-- The function: functions/enqueue_deduped.sql. Indexes: primary keys of dedupe and idempotency; as enqueue_keyed.
SELECT d.seqs, d.updated, d.head_seq, d.ready, d.due, d.touched, d.duplicate, d.repeated
FROM holdfast.enqueue_deduped($1::text, $2::integer, $3::oid, $4::bytea[], $5::text[], $6::text[], $7::json[],
                              $8::text[], $9::smallint[], $10::bigint[], $11::timestamptz[], $12::bigint[],
                              $13::integer[], $14::text[], $15::text[], $16::bigint, $17::boolean, $18::integer,
                              $19::text[], $20::text[], $21::bigint, $22::integer[], $23::text[], $24::bigint) d
