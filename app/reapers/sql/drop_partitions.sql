-- Drop the ledger's partitions of days more than $1 days ago. Answers how many there were.
SELECT holdfast.drop_event_partitions($1)
