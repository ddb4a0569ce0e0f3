-- Put jobs into a queue of which some have keys or groups; all of them or none. A pending job of the same tenant and key gets the
-- payload, its type and metadata, and keeps its place and seq; so does one whose lease has ended, which goes to the due lane. A
-- lease that is good is left alone. Of several with one key, the last one counts. A job whose group has a live one is
-- blocked, and so are all but the first of a group.
--   $1 topic  $2 topic id  $3 oid of the topic's sequence  $4 payloads
--   $5 tags  $6 producers' nodes  $7 metadata  $8 tenants  $9 priorities  $10 delays in ms  $11 run_at  $12 TTLs in ms
--   $13 max_deliveries  $14 content types; $5 to $14 as in enqueue  $15 keys, one for each payload, or NULL
--   $16 the topic's TTL in ms, 0 for none
--   $17 whether deliveries run out here  $18 the topic's max_deliveries, 0 for no end: a job whose last delivery has ended
--   is on its way out, and not updated  $19 groups, as $5 to $14
-- Answers one row: seqs and updated, in the order of $4; head_seq, the last seq drawn as far as is known; how many
-- became ready; how many due; touched, how many pending ones were updated, which claims passed over meanwhile.
-- Raises undefined_object when the topic was deleted meanwhile, and serialization_failure.
-- Groups are locked first, then keys.   The function: functions/enqueue_keyed.sql. Indexes: jobs_pending_key, jobs_keyed.
SELECT e.seqs, e.updated, e.head_seq, e.ready, e.due, e.touched
FROM holdfast.enqueue_keyed($1::text, $2::integer, $3::oid, $4::bytea[], $5::text[], $6::text[], $7::json[],
                            $8::text[], $9::smallint[], $10::bigint[], $11::timestamptz[], $12::bigint[],
                            $13::integer[], $14::text[], $15::text[], $16::bigint, $17::boolean, $18::integer,
                            $19::text[]) e
