-- Enqueue jobs of which some have keys or groups, all or none.
-- A pending job with the same tenant and key gets the payload, content type and metadata, and keeps its seq and
-- position. So does a job whose lease has ended; it goes to the due part of its lane. A job with a valid lease is left
-- alone. Of several records with one key the last one counts. A job whose group has a live job is blocked, and so are
-- all but the first job of a group.
--   $1 to $14 as in enqueue
--   $15  keys, one per payload, or NULL
--   $16  the topic's TTL in ms, 0 for none
--   $17  whether deliveries are limited here
--   $18  the topic's max_deliveries, 0 for no limit; a job with no deliveries left is not updated
--   $19  groups; can be shorter
-- Answers one row: seqs and updated, in the order of $4; head_seq, the last seq drawn as far as known; ready and due,
-- how many jobs became claimable; touched, how many pending jobs were updated, which claims skipped meanwhile.
-- Raises undefined_object if the topic was deleted meanwhile, and serialization_failure.
-- Locks groups before keys.   The function: functions/enqueue_keyed.sql. Indexes: jobs_pending_key, jobs_keyed.
SELECT e.seqs, e.updated, e.head_seq, e.ready, e.due, e.touched
FROM holdfast.enqueue_keyed($1::text, $2::integer, $3::oid, $4::bytea[], $5::text[], $6::text[], $7::json[],
                            $8::text[], $9::smallint[], $10::bigint[], $11::timestamptz[], $12::bigint[],
                            $13::integer[], $14::text[], $15::text[], $16::bigint, $17::boolean, $18::integer,
                            $19::text[]) e
