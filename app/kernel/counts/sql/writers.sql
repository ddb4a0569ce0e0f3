-- Who may still commit jobs?   $1 oids of sequences
-- One row: the virtual transactions that hold a lock with which jobs are written or seqs are drawn. Both locks are held
-- to the end of the transaction, and let go after its changes can be seen. A prepared transaction keeps them, and its
-- virtual transaction, and has no pid.
SELECT array(
    SELECT DISTINCT l.virtualtransaction FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
      AND (l.relation = 'holdfast.jobs'::regclass OR l.relation = ANY ($1::oid[]))
      AND l.pid IS DISTINCT FROM pg_backend_pid()
) AS writers
