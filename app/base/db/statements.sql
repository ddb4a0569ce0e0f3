-- name: health
-- The server's state for a scrape: connections, sizes, write-ahead log, slots and standbys.
--   $1  most slots and standbys, those with the most bytes first
-- Returns one row: `answer`, a JSON object with the fields of app.base.db.health.ServerFacts.
-- Reads statistics views and sizes of files, no tables. Values that the role can't see, or that a standby does not know,
-- are null or left out. most_connections leaves out connections that are reserved for superusers.
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

-- name: horizon
-- The holders of the vacuum horizon, and the number of dead rows in the service's tables.
--   $1  most holders, oldest first
-- Returns one row: `answer`, a JSON object with the fields of app.base.db.health.HorizonFacts.
-- Reads statistics views, no tables of jobs. A transaction holds the horizon at its oldest snapshot or its own id,
-- whichever is older, in its own database only; a standby's feedback holds it in all databases. A running VACUUM does not
-- count. Neither does a slot's catalog_xmin, which only affects system catalogs. Every role sees ids and application
-- names of others' sessions; the rest is for members of pg_read_all_stats.
WITH session AS (
    SELECT CASE WHEN r.pid IS NOT NULL AND a.datname IS NULL THEN 'standby' ELSE 'session' END AS kind,
           a.pid, a.application_name AS application, a.usename AS "user", a.datname AS database,
           coalesce(host(a.client_addr), CASE WHEN a.client_port = -1 THEN 'local' END) AS client, a.state,
           a.wait_event_type || ': ' || a.wait_event AS wait,
           CASE WHEN a.state IS NOT NULL THEN left(a.query, 200) END AS query,
           a.xact_start AS since, greatest(age(a.backend_xid), age(a.backend_xmin)) AS xmin_age,
           CASE WHEN a.backend_xid IS NULL OR age(a.backend_xmin) >= age(a.backend_xid)
                THEN a.backend_xmin ELSE a.backend_xid END::text AS xmin,
           NULL::text AS name,
           a.usename = session_user AND a.application_name = current_setting('application_name') AS own
    FROM pg_stat_activity a LEFT JOIN pg_stat_replication r ON r.pid = a.pid
    WHERE coalesce(a.backend_xid, a.backend_xmin) IS NOT NULL
      AND (a.datname = current_database() OR r.pid IS NOT NULL AND a.datname IS NULL)
      AND a.pid <> pg_backend_pid()
      AND a.pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum v)
), holder AS (
    SELECT * FROM session
    UNION ALL
    SELECT 'replication_slot', active_pid, NULL, NULL, database::text, NULL,
           CASE WHEN active THEN 'active' ELSE 'inactive' END, NULL, NULL, NULL, age(xmin), xmin::text, slot_name::text,
           false
    FROM pg_replication_slots WHERE xmin IS NOT NULL
    UNION ALL
    SELECT 'prepared_transaction', NULL, NULL, owner::text, database::text, NULL, 'prepared', NULL, NULL, prepared,
           age(transaction), transaction::text, gid, false
    FROM pg_prepared_xacts WHERE database = current_database()
), holders AS (
    SELECT kind, pid, application, "user", database, client, state, wait, query, name, own, xmin, xmin_age,
           (date_part('epoch', since) * 1000)::bigint AS since,
           CASE WHEN since IS NOT NULL THEN greatest(date_part('epoch', clock_timestamp() - since), 0) END AS age_s
    FROM holder ORDER BY xmin_age DESC, since LIMIT $1::integer
), stored AS (
    SELECT coalesce(p.relname, c.relname) AS name, count(p.oid) AS partitions,
           coalesce(sum(s.n_live_tup), 0)::bigint AS live_rows, coalesce(sum(s.n_dead_tup), 0)::bigint AS dead_rows,
           (date_part('epoch', max(s.last_vacuum)) * 1000)::bigint AS last_vacuum,
           (date_part('epoch', max(s.last_autovacuum)) * 1000)::bigint AS last_autovacuum
    FROM pg_class c
    JOIN pg_stat_all_tables s ON s.relid = c.oid
    LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
    LEFT JOIN pg_class p ON p.oid = i.inhparent
    WHERE c.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'holdfast') AND c.relkind = 'r'
      AND c.relname <> 'alembic_version'
    GROUP BY 1
)
SELECT json_build_object(
    'at', (date_part('epoch', clock_timestamp()) * 1000)::bigint,
    'role', current_user,
    'limited', NOT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),
    'holders', coalesce((SELECT json_agg(h ORDER BY xmin_age DESC, since) FROM holders h), '[]'),
    'tables', coalesce((SELECT json_agg(s ORDER BY dead_rows DESC, live_rows DESC, name) FROM stored s), '[]')
) AS answer
