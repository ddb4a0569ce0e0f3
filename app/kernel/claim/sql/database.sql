-- A name for this database that no other has: its server's own number, and its oid there.
-- Answers one row.
SELECT s.system_identifier || '.' || d.oid
FROM pg_control_system() s CROSS JOIN pg_database d WHERE d.datname = current_database()
