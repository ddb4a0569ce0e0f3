-- Keep what was written with an idempotency key.   $1 topic  $2 topic id  $3 key  $4 seqs  $5 for how many ms
INSERT INTO holdfast.idempotency AS k (topic, topic_id, key, expires_at, first_seq, last_seq, seqs)
VALUES ($1, $2::integer, $3, clock_timestamp() + $5::bigint * interval '1 ms', ($4::bigint[])[1],
        ($4::bigint[])[cardinality($4::bigint[])], $4::bigint[])
ON CONFLICT (topic, key) DO UPDATE
SET topic_id = excluded.topic_id, expires_at = excluded.expires_at, first_seq = excluded.first_seq,
    last_seq = excluded.last_seq, seqs = excluded.seqs
