-- Let one key be made at a time, to the end of the transaction: the first one is special, and their number is bounded.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.api_keys', 0))
