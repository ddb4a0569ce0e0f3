-- One at a time looks at the rows of a topic, so that they keep their order.   $1 topic
-- One row: whether it is the caller, up to the end of its transaction.
SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast.inbox ' || $1::text, 0))
