-- Return jobs with keys that their holders still have. Where a pending one has the key, the one lives on whose payload is
-- newer, and the other ends.
--   $1 topic  $2 seqs, ascending  $3 lease ids, or NULL for any  $4 nodes, or NULL for any  $5 delays in ms,
--   or NULL  $6 errors, or NULL  $7 how often a job's delivery is given back, or NULL (see nack); one each per seq
--   $8 the topic's backoff, NULL for none
-- Answers one row: `done`, the places in $2 (from 1) that were their holder's, and of those `superseded`, which ended, and
-- `refunded`; and the `delays` of those that did not end.
-- Raises serialization_failure.   The function: functions/nack_keyed.sql. Indexes: primary key, jobs_pending_key.
SELECT n.done, n.superseded, n.refunded, n.delays
FROM holdfast.nack_keyed($1::text, $2::bigint[], $3::uuid[], $4::text[], $5::bigint[], $6::text[], $7::smallint[],
                         $8::json) n
