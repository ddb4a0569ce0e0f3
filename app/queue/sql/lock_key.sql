-- Let those who write to a queue with one idempotency key do so one after the other, up to commit.
--   $1 topic id  $2 key
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.idempotency ' || $1::integer || ' ' || $2::text, 0))
