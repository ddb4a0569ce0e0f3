-- What was written with an idempotency key whose window has not passed?   $1 topic  $2 topic id  $3 key
-- One row: its seqs. No row: nothing.   Index: primary key.
SELECT k.seqs FROM holdfast.idempotency k
WHERE k.topic = $1 AND k.key = $3 AND k.topic_id = $2::integer AND k.expires_at > now()
