-- Let claims of tenants with limits come one after the other, up to commit.   $1 topic id
-- What a later statement of the same transaction counts is then all that is in flight.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.tenants ' || $1::integer, 0))
