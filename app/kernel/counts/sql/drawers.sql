-- Who may still commit a job with a seq that was drawn already?   $1 oid of the topic's sequence
-- One row: the virtual transactions that have drawn from it and go on. Drawing locks the sequence to the end of the
-- transaction, and the lock is let go after its changes can be seen.
SELECT array(
    SELECT DISTINCT l.virtualtransaction FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
      AND l.relation = $1::oid AND l.pid <> pg_backend_pid()
) AS drawers
