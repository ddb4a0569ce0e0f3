-- Return jobs with keys. If a pending job has the same key, the job with the newer payload stays and the other one
-- ends.
--   $1 to $4 as in ack
--   $5  delay per seq in ms, or NULL
--   $6  error per seq, or NULL
--   $7  limit per seq on given-back deliveries, or NULL (see nack)
--   $8  the topic's backoff, or NULL for none
-- Answers one row: `done`, places in $2 (from 1) of jobs whose lease the caller still had; `superseded`, the places of
-- these that ended; `refunded`, as in nack; `delays` of the jobs that did not end.
-- Raises serialization_failure.   The function: functions/nack_keyed.sql. Indexes: primary key, jobs_pending_key.
SELECT n.done, n.superseded, n.refunded, n.delays
FROM holdfast.nack_keyed($1::text, $2::bigint[], $3::uuid[], $4::text[], $5::bigint[], $6::text[], $7::smallint[],
                         $8::json) n
