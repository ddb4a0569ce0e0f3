-- Let those who add jobs to a queue with a limit do so one after the other, up to commit.   $1 topic id
-- What a later statement of the same transaction counts is then all that was added.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.depth ' || $1::integer, 0))
