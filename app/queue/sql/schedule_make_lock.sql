-- Let one schedule be made at a time, to the end of the transaction: their number is bounded.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.schedules', 0))
