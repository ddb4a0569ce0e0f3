-- How the server stands, and the log's readers: what a scrape shows of PostgreSQL.
--   $1 most slots and standbys, those that keep or lack the most come first
-- One row: `answer`, a JSON object with the fields of app.base.db.health.Health. Reads statistics views, and of the database's
-- files their sizes; no table. What the role may not see, or a standby does not know, is null or left out.
-- connections counts sessions in all databases; most_connections is what roles that are no superusers may have.
SELECT json_build_object(
    'connections', (SELECT coalesce(sum(numbackends), 0) FROM pg_stat_database),
    'most_connections', current_setting('max_connections')::integer
        - current_setting('superuser_reserved_connections')::integer
        - coalesce(current_setting('reserved_connections', true), '0')::integer,
    'lock_waits', (SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'),
    'bytes', pg_database_size(current_database()),
    'transaction_age', (SELECT max(age(datfrozenxid)) FROM pg_database),
    'multixact_age', (SELECT max(mxid_age(datminmxid)) FROM pg_database),
    'wal_bytes', CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint END,
    'archive_fails', (SELECT last_failed_time > coalesce(last_archived_time, '-infinity') FROM pg_stat_archiver
                      WHERE current_setting('archive_mode') <> 'off'),
    'commits', d.xact_commit, 'rollbacks', d.xact_rollback, 'deadlocks', d.deadlocks,
    'blocks_cached', d.blks_hit, 'blocks_read', d.blks_read,
    'slots', (SELECT coalesce(json_object_agg(slot_name, bytes), '{}') FROM (
        SELECT slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint AS bytes FROM pg_replication_slots
        WHERE restart_lsn IS NOT NULL AND NOT pg_is_in_recovery() ORDER BY bytes DESC LIMIT $1::integer) s),
    'standbys', (SELECT coalesce(json_object_agg(name, bytes), '{}') FROM (
        SELECT application_name AS name, max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))::bigint AS bytes
        FROM pg_stat_replication WHERE replay_lsn IS NOT NULL AND NOT pg_is_in_recovery()
        GROUP BY 1 ORDER BY bytes DESC LIMIT $1::integer) r)
) AS answer
FROM pg_stat_database d WHERE d.datname = current_database()
