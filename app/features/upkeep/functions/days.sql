-- Tables partitioned by days in UTC: lease_events, archive, results. These functions wait 200 ms at most for a lock, so
-- that verbs don't queue up behind a long read.

-- Create the partitions of today and the next days. Returns how many were missing. ATTACH creates the indexes, and only
-- takes SHARE UPDATE EXCLUSIVE on the parent.
CREATE OR REPLACE FUNCTION holdfast.create_day_partitions(parent text, ahead integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    made integer := 0;
    name text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.' || parent, 0));
    FOR day IN 0..ahead LOOP
        name := parent || '_' || to_char(today + day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(format('holdfast.%I', name)) IS NOT NULL;
        EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.%I INCLUDING DEFAULTS INCLUDING STORAGE)',
                       name, parent);
        EXECUTE format(
            'ALTER TABLE holdfast.%I ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)', parent, name,
            (today + day)::timestamp AT TIME ZONE 'UTC', (today + day + 1)::timestamp AT TIME ZONE 'UTC');
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;

-- Drop partitions that ended more than `keep_days` ago. It drops nothing but partitions, whatever `parent` is. `held`:
-- how many stay because archived_days has no row for them.
CREATE OR REPLACE FUNCTION holdfast.drop_day_partitions(
    parent text, keep_days integer, only_archived boolean, OUT gone integer, OUT held integer
)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    old record;
BEGIN
    gone := 0;
    held := 0;
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.' || parent, 0));
    FOR old IN
        SELECT d.partition, d.archived FROM holdfast.day_partitions d
        WHERE d.of_table = parent AND d.day < today - keep_days ORDER BY d.day
    LOOP
        IF only_archived AND NOT old.archived THEN
            held := held + 1;
            CONTINUE;
        END IF;
        EXECUTE format('DROP TABLE holdfast.%I', old.partition);
        gone := gone + 1;
    END LOOP;
END $$;

-- Drop the days of results that have only expired results and results of deleted topics. The last two days always stay:
-- an ack that began before midnight may not have been committed.
CREATE OR REPLACE FUNCTION holdfast.drop_result_partitions(only_archived boolean, OUT gone integer, OUT held integer)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    needed boolean;
    old record;
BEGIN
    gone := 0;
    held := 0;
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.results', 0));
    FOR old IN
        SELECT d.partition, d.archived FROM holdfast.day_partitions d
        WHERE d.of_table = 'results' AND d.day < today - 1 ORDER BY d.day
    LOOP
        EXECUTE format(
            'SELECT EXISTS (SELECT 1 FROM holdfast.%I r WHERE (r.expires_at IS NULL OR r.expires_at > now())
                            AND EXISTS (SELECT 1 FROM holdfast.topics t WHERE t.id = r.topic_id))', old.partition)
            INTO needed;
        CONTINUE WHEN needed;
        IF only_archived AND NOT old.archived THEN
            held := held + 1;
            CONTINUE;
        END IF;
        EXECUTE format('DROP TABLE holdfast.%I', old.partition);
        gone := gone + 1;
    END LOOP;
END $$;
