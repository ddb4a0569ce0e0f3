"""A database as the first migration left it, with jobs in it; and what is noted of the migrations that follow."""

from __future__ import annotations

from typing import Final

JOBS: Final = 20_000
FILL: Final = f"""
INSERT INTO holdfast.topics (name, type) SELECT 'mail' || n, 'queue' FROM generate_series(1, 20) n;
SELECT holdfast.create_topic_sequence(id) FROM holdfast.topics;
INSERT INTO holdfast.jobs (seq, position, visible_at, created_at, updated_at, topic_id, topic, state, lease_id, node,
                           deliveries, payload)
    SELECT n, n, now(), now(), now(), t.id, t.name,
           CASE WHEN n % 10 = 0 THEN 'leased' WHEN n % 10 = 1 THEN 'failed' ELSE 'ready' END::holdfast.job_state,
           CASE WHEN n % 10 = 0 THEN gen_random_uuid() END, CASE WHEN n % 10 = 0 THEN 'w' END,
           (n % 10 < 2)::int, convert_to('{{"n": ' || n || '}}', 'UTF8')
    FROM holdfast.topics t, generate_series(1, {JOBS} / 20) n;
INSERT INTO holdfast.lanes SELECT name FROM holdfast.topics;
INSERT INTO holdfast.lease_events (seq, topic_id, topic, deliveries, event)
    SELECT seq, topic_id, topic, 0, 'enqueued' FROM holdfast.jobs;
ANALYZE;
"""
# Writes down what each migration locks of the tables that there were before it, as each of its commands ends: in its
# own transaction, so that what is rolled back has never been. Until it ends the version is that before it.
WATCH: Final = """
CREATE SCHEMA watch;
CREATE TABLE watch.known (after text, relation oid, name text, PRIMARY KEY (after, relation));
CREATE TABLE watch.locks (after text, relation text, mode text, PRIMARY KEY (after, relation, mode),
                          lock_timeout text DEFAULT current_setting('lock_timeout'));
CREATE FUNCTION watch.begins() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NOT EXISTS (SELECT FROM watch.known k JOIN holdfast.alembic_version v ON k.after = v.version_num) THEN
            INSERT INTO watch.known
                SELECT v.version_num, c.oid, c.relname FROM pg_class c CROSS JOIN holdfast.alembic_version v
                WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
                  AND c.relname <> 'alembic_version';
        END IF;
    END $$;
CREATE FUNCTION watch.ends() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO watch.locks (after, relation, mode)
            SELECT v.version_num, k.name, l.mode
            FROM holdfast.alembic_version v JOIN watch.known k ON k.after = v.version_num
                JOIN pg_locks l ON l.relation = k.relation
            WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation'
        ON CONFLICT DO NOTHING;
    END $$;
CREATE EVENT TRIGGER watch_begins ON ddl_command_start EXECUTE FUNCTION watch.begins();
CREATE EVENT TRIGGER watch_ends ON ddl_command_end EXECUTE FUNCTION watch.ends();
"""
# By migration, what would hold up a verb.
LOCKED: Final = """
SELECT after, relation, array_agg(mode) AS modes FROM watch.locks
WHERE mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
GROUP BY after, relation
"""
# All that makes a schema, in lines. Sequences are its topics', and partitions its days'.
SCHEMA: Final = """
WITH relations AS (
    SELECT oid, relname, relkind, reloptions, relacl FROM pg_class
    WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'i', 'I') AND NOT relispartition
)
SELECT concat_ws(' ', relname, relkind, reloptions, relacl) FROM relations
UNION ALL SELECT concat_ws(' ', r.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                           a.attstorage, pg_get_expr(d.adbin, d.adrelid))
    FROM relations r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
UNION ALL SELECT concat_ws(' ', r.relname, c.conname, pg_get_constraintdef(c.oid))
    FROM relations r JOIN pg_constraint c ON c.conrelid = r.oid
UNION ALL SELECT pg_get_indexdef(oid) FROM relations WHERE relkind IN ('i', 'I')
UNION ALL SELECT concat_ws(' ', relname, pg_get_viewdef(oid)) FROM relations WHERE relkind = 'v'
UNION ALL SELECT concat_ws(' ', pg_get_functiondef(oid), proacl) FROM pg_proc
    WHERE pronamespace = 'holdfast'::regnamespace AND prokind = 'f'
UNION ALL SELECT concat_ws(' ', r.relname, pg_get_triggerdef(t.oid))
    FROM relations r JOIN pg_trigger t ON t.tgrelid = r.oid AND NOT t.tgisinternal
UNION ALL SELECT concat_ws(' ', t.typname, e.enumsortorder, e.enumlabel)
    FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid
    WHERE t.typnamespace = 'holdfast'::regnamespace
ORDER BY 1
"""
