-- Groups: one job of a group runs at a time, in the order of enqueueing. See docs/adr/0033.

-- Trigger of holdfast.jobs: a group's first job has left, so the next one can run. Only leaves a note for `promote`,
-- because the verb that removed the job must not wait for the group's lock here.
CREATE OR REPLACE FUNCTION holdfast.free_group() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) VALUES (OLD.topic_id, OLD.tenant, OLD.grp);
    RETURN NULL;
END $$;

-- Locks groups, in the same order for all callers, and adds groups without a live job: these are `fresh` for this
-- caller.
CREATE OR REPLACE FUNCTION holdfast.lock_groups(of_id integer, tenants text[], grps text[])
RETURNS TABLE (tenant text, grp text, fresh boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    INSERT INTO holdfast.groups AS g (topic_id, tenant, grp, fresh)
    SELECT of_id, o.tenant, o.grp, true
    FROM (SELECT DISTINCT coalesce(u.tenant, '') COLLATE "C" AS tenant, u.grp COLLATE "C" AS grp
          FROM unnest(tenants, grps) AS u(tenant, grp) WHERE u.grp IS NOT NULL) o
    ORDER BY o.tenant, o.grp
    ON CONFLICT (topic_id, tenant, grp) DO UPDATE SET fresh = false
    RETURNING g.tenant, g.grp, g.fresh;
END $$;

-- Lets the first blocked job of each group run if no job of the group does. The caller has locked the groups in an
-- earlier statement. The job becomes ready at a new position (ADR 0012), or scheduled. A group without jobs is
-- forgotten. If the first job is locked, its group gets a new note: the job behind it must not run in its place.
CREATE OR REPLACE FUNCTION holdfast.let_next(
    of_topic text, of_id integer, sequence oid, tenants text[], grps text[], OUT ready integer, OUT scheduled integer
)
LANGUAGE plpgsql
AS $$
BEGIN
    WITH idle AS MATERIALIZED (
        SELECT g.tenant, g.grp, f.seq
        FROM unnest(tenants, grps) AS g(tenant, grp)
        LEFT JOIN LATERAL (
            SELECT j.seq FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.tenant = g.tenant AND j.grp = g.grp AND j.state = 'blocked'
            ORDER BY j.seq LIMIT 1
        ) f ON true
        LEFT JOIN LATERAL (
            SELECT true AS there FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.tenant = g.tenant AND j.grp = g.grp AND j.grp IS NOT NULL
              AND j.original_topic IS NULL AND j.state IN ('ready', 'scheduled', 'leased')
            LIMIT 1
        ) o ON true
        WHERE o.there IS NULL
    ), over AS (
        DELETE FROM holdfast.groups g USING idle i
        WHERE i.seq IS NULL AND g.topic_id = of_id AND g.tenant = i.tenant AND g.grp = i.grp
    ), picked AS MATERIALIZED (
        SELECT i.tenant, i.grp, x.tid FROM (SELECT * FROM idle WHERE seq IS NOT NULL ORDER BY seq) i
        LEFT JOIN LATERAL (
            SELECT j.ctid AS tid FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.seq = i.seq AND j.state::text = 'blocked'
            LIMIT 1 FOR UPDATE SKIP LOCKED
        ) x ON true
    ), done AS (
        UPDATE holdfast.jobs j
        SET state = CASE WHEN j.visible_at > clock_timestamp() THEN 'scheduled' ELSE 'ready'
                    END::holdfast.job_state,
            position = nextval(sequence::regclass)
        FROM picked p WHERE j.ctid = p.tid
        RETURNING j.seq, j.state, j.visible_at, j.deliveries
    ), event AS (
        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, until)
        SELECT of_topic, of_id, d.seq, 'unblocked', d.deliveries,
               CASE WHEN d.state = 'scheduled' THEN d.visible_at END
        FROM done d
    ), tally AS (
        INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked)
        SELECT of_id, count(*) FILTER (WHERE d.state = 'ready'),
               count(*) FILTER (WHERE d.state = 'scheduled'), -count(*)
        FROM done d HAVING count(*) > 0
    ), again AS (
        INSERT INTO holdfast.freed_groups (topic_id, tenant, grp)
        -- If a job changed before it was locked, all groups get notes: a note too many does no harm.
        SELECT of_id, p.tenant, p.grp FROM picked p
        WHERE p.tid IS NULL OR (SELECT count(*) FROM done) < (SELECT count(q.tid) FROM picked q)
    )
    SELECT count(*) FILTER (WHERE d.state = 'ready'), count(*) FILTER (WHERE d.state = 'scheduled')
    INTO ready, scheduled FROM done d;
END $$;

-- Lets the next jobs of freed groups run, of up to `most` groups. The third statement's snapshot is taken after the
-- groups are locked, so it sees all jobs that were added before. Later jobs are added behind them.
CREATE OR REPLACE FUNCTION holdfast.promote(
    of_topic text, of_id integer, sequence oid, most integer, OUT freed integer, OUT ready integer,
    OUT scheduled integer
)
LANGUAGE plpgsql
AS $$
DECLARE
    tenants text[];
    grps text[];
BEGIN
    ready := 0;
    scheduled := 0;
    -- Locks the sequence until the end of the transaction, as nextval does, so the topic's deletion waits.
    PERFORM pg_sequence_last_value(sequence::regclass);
    WITH picked AS MATERIALIZED (
        SELECT f.ctid AS tid FROM holdfast.freed_groups f WHERE f.topic_id = of_id
        ORDER BY f.id LIMIT most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM holdfast.freed_groups f USING picked p WHERE f.ctid = p.tid RETURNING f.tenant, f.grp
    )
    SELECT count(*), array_agg(g.tenant), array_agg(g.grp) INTO freed, tenants, grps FROM gone g;
    IF freed > 0 THEN
        -- A group that is gone has ended, or has begun again with a job that runs.
        SELECT array_agg(l.tenant), array_agg(l.grp) INTO tenants, grps
        FROM (
            SELECT x.tenant, x.grp
            FROM (
                SELECT DISTINCT u.tenant COLLATE "C" AS tenant, u.grp COLLATE "C" AS grp
                FROM unnest(tenants, grps) AS u(tenant, grp) ORDER BY 1, 2
            ) o
            CROSS JOIN LATERAL (
                SELECT g.tenant, g.grp FROM holdfast.groups g
                WHERE g.topic_id = of_id AND g.tenant = o.tenant AND g.grp = o.grp FOR UPDATE
            ) x
        ) l;
        SELECT n.ready, n.scheduled INTO ready, scheduled
        FROM holdfast.let_next(of_topic, of_id, sequence, tenants, grps) n;
    END IF;
END $$;
