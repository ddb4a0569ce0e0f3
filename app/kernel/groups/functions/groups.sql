-- Groups: one job of a group is out at a time, in the order of enqueueing. docs/adr/0033 has the argument.

-- Trigger of holdfast.jobs: the job of a group that was out has gone, so the next one may come out. Writes that down
-- only, since the verb that took the job out must not wait for the group's lock here; `promote` reads it.
CREATE OR REPLACE FUNCTION holdfast.free_group() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) VALUES (OLD.topic_id, OLD.tenant, OLD.grp);
    RETURN NULL;
END $$;

-- Locks groups, in one order for all callers, and makes those known that have no live job: for this caller these are
-- `fresh`.
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

-- Lets the first waiting job of each of these groups out, if no job of the group is out. The caller has locked the
-- groups in an earlier statement. A job that comes out is ready at a fresh position (ADR 0012), or hidden until its
-- time. A group without jobs is forgotten. A group whose first job somebody else has locked is left, and freed anew:
-- the job behind it must not come out in its place.
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
        -- Where one was changed between the look and the lock, all of them: a note too many does no harm.
        SELECT of_id, p.tenant, p.grp FROM picked p
        WHERE p.tid IS NULL OR (SELECT count(*) FROM done) < (SELECT count(q.tid) FROM picked q)
    )
    SELECT count(*) FILTER (WHERE d.state = 'ready'), count(*) FILTER (WHERE d.state = 'scheduled')
    INTO ready, scheduled FROM done d;
END $$;

-- Lets the next job of freed groups out, up to `most` groups. Three statements, so that the last one's snapshot is
-- taken once the groups are locked: it sees every job that was added before, and later ones are added behind.
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
    -- Locks the sequence to the end of the transaction, as nextval does: the topic's deletion waits for it.
    PERFORM pg_sequence_last_value(sequence::regclass);
    WITH picked AS MATERIALIZED (
        SELECT f.ctid AS tid FROM holdfast.freed_groups f WHERE f.topic_id = of_id
        ORDER BY f.id LIMIT most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM holdfast.freed_groups f USING picked p WHERE f.ctid = p.tid RETURNING f.tenant, f.grp
    )
    SELECT count(*), array_agg(g.tenant), array_agg(g.grp) INTO freed, tenants, grps FROM gone g;
    IF freed > 0 THEN
        -- One that is gone by now is over, or was begun anew and has a job out.
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
