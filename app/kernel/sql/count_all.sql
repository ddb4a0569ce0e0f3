-- How many jobs there are in all topics, finished ones that are kept included: one row.   Reads the tallies.
SELECT coalesce(sum(ready + scheduled + blocked + leased + failed + expired), 0)::bigint FROM holdfast.tallies
