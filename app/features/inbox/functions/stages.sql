-- Staged writes: jobs that several connections stage, and one transaction puts in (docs/spark-write.md). None of these
-- functions SETs a parameter of ours at its head: that takes a superuser, and the role that migrates, or restores a
-- dump, need not be one.

-- A number for one attempt of one task to stage rows under.
CREATE OR REPLACE FUNCTION holdfast.open_stage(of_run text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    opened bigint;
BEGIN
    INSERT INTO holdfast.stages (run) VALUES (of_run) RETURNING attempt INTO opened;
    RETURN opened;
END $$;

-- Trigger of holdfast.staged: holds the attempt while rows are staged. Rows of an attempt that was given up would lie
-- there for ever: they are refused.
CREATE OR REPLACE FUNCTION holdfast.hold_stage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    first bigint;
    last bigint;
BEGIN
    SELECT min(x.attempt), max(x.attempt) INTO first, last FROM added x;
    PERFORM 1 FROM holdfast.stages s WHERE s.attempt = first AND first = last FOR KEY SHARE;
    IF NOT FOUND AND first IS NOT NULL THEN
        RAISE EXCEPTION 'attempt % was given up, or these rows are of several', first
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NULL;
END $$;

-- All that these attempts of a run have staged become jobs, or nothing does. Answers false if they are jobs already,
-- by an earlier commit of this batch, or a later one, of the same write. What they staged is gone from there either
-- way.
CREATE OR REPLACE FUNCTION holdfast.commit_stages(
    of_run text, of_write text, of_batch bigint, attempts bigint[], rows bigint
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    counted bigint;
BEGIN
    INSERT INTO holdfast.writes AS w (write_id, batch, jobs) VALUES (of_write, of_batch, rows)
    ON CONFLICT (write_id) DO UPDATE
    SET batch = excluded.batch, jobs = excluded.jobs, committed_at = excluded.committed_at
    WHERE w.batch < excluded.batch;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM holdfast.stages s WHERE s.attempt = ANY (attempts) AND s.run = of_run
    ORDER BY s.attempt FOR UPDATE;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted = cardinality(attempts) THEN
        PERFORM set_config('holdfast.commits', 'on', true);
        DELETE FROM holdfast.staged s WHERE s.attempt = ANY (attempts);
        GET DIAGNOSTICS counted = ROW_COUNT;
        PERFORM set_config('holdfast.commits', 'off', true);
        IF counted = rows THEN
            DELETE FROM holdfast.stages s WHERE s.attempt = ANY (attempts);
            RETURN true;
        END IF;
    END IF;
    RAISE EXCEPTION 'of % rows that were staged for write "%" not all are there, and nothing was written',
        rows, of_write USING ERRCODE = 'object_not_in_prerequisite_state',
        HINT = 'PostgreSQL crashed since then, or a day has passed. Write them again.';
END $$;

-- Deletes up to `most` rows that were staged in this run; without a run, those of attempts from more than a day ago.
-- Answers how many. Fewer than `most`: that was all, but for what somebody is writing or committing.
CREATE OR REPLACE FUNCTION holdfast.drop_stages(of_run text, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    dropped integer := 0;
    gone integer;
    one bigint;
BEGIN
    PERFORM set_config('holdfast.commits', 'off', true);
    FOR one IN
        SELECT s.attempt FROM holdfast.stages s
        WHERE s.run = of_run OR (of_run IS NULL AND s.started_at < clock_timestamp() - interval '1 day')
        ORDER BY s.attempt LIMIT 1000 FOR UPDATE SKIP LOCKED
    LOOP
        DELETE FROM holdfast.staged s
        WHERE s.ctid = ANY (ARRAY(
            SELECT x.ctid FROM holdfast.staged x WHERE x.attempt = one LIMIT most - dropped));
        GET DIAGNOSTICS gone = ROW_COUNT;
        dropped := dropped + gone;
        EXIT WHEN dropped >= most;
        DELETE FROM holdfast.stages s WHERE s.attempt = one;
    END LOOP;
    RETURN dropped;
END $$;
