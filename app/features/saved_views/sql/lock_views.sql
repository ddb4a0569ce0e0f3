-- Let an owner's views be saved one at a time, to the end of the transaction: their number is bounded.   $1 owner
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.saved_views ' || $1::text, 0))
