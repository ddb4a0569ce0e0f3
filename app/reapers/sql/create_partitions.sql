-- Make the ledger's partitions of today and the next $1 days. Answers how many were missing.
SELECT holdfast.create_event_partitions($1)
