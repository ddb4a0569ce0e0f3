-- Let nobody else reconcile a topic's tallies until this transaction ends.   $1 topic id
-- Answers whether the lock was free.
SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast.reconcile', $1::integer))
