-- Enqueue jobs of several callers, except duplicates: a record whose dedupe id is known for its
-- tenant and group, or the whole batch of a caller whose idempotency key is known. The rest is enqueued as in
-- enqueue_keyed, all or none.
--   $1 to $14 as in enqueue
--   $15  keys, one per payload, or NULL
--   $16  the topic's TTL in ms, 0 for none
--   $17  whether deliveries are limited here
--   $18  the topic's max_deliveries
--   $19  groups; can be shorter
--   $20  dedupe ids, or NULL; can be shorter
--   $21  how many ms dedupe ids are remembered
--   Callers, in order:
--   $22  how many of the records are theirs
--   $23  idempotency key of the batch, or NULL
--   $24  how many ms idempotency keys are remembered
-- Answers one row per caller, in order:
--   seqs, updated, duplicate  in the order of its records
--   head_seq                  the last seq drawn
--   ready, due, touched       of all callers in the first row, 0 in the others
--   repeated                  whether the batch was enqueued before: all its records are duplicates, and head_seq and
--                             seqs, which may be more or fewer, are those of the first time
-- Waits for transactions that write the same ids or keys. Raises undefined_object if the topic was deleted meanwhile,
-- and serialization_failure.
-- The function: functions/enqueue_deduped.sql. Indexes: primary keys of dedupe and idempotency; as enqueue_keyed.
SELECT d.seqs, d.updated, d.head_seq, d.ready, d.due, d.touched, d.duplicate, d.repeated
FROM holdfast.enqueue_deduped($1::text, $2::integer, $3::oid, $4::bytea[], $5::text[], $6::text[], $7::json[],
                              $8::text[], $9::smallint[], $10::bigint[], $11::timestamptz[], $12::bigint[],
                              $13::integer[], $14::text[], $15::text[], $16::bigint, $17::boolean, $18::integer,
                              $19::text[], $20::text[], $21::bigint, $22::integer[], $23::text[], $24::bigint) d
