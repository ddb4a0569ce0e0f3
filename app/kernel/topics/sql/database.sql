-- What tells this database from every other: the cluster's identifier, and the database's own in it.
SELECT c.system_identifier || '.' || d.oid AS name
FROM pg_control_system() c JOIN pg_database d ON d.datname = current_database()
