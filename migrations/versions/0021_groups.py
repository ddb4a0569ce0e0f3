"""Groups: of each, one job is out at a time, in the order of enqueueing. docs/adr/0033 has the argument.

Revision ID: 0021
"""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


UP = [
    # Not valid: it holds for what is written from now on, and what is there has no group. No scan under the lock.
    'ALTER TABLE holdfast.jobs ADD COLUMN grp text COLLATE "C"',
    "ALTER TABLE holdfast.jobs ADD CONSTRAINT jobs_grp_check CHECK (char_length(grp) BETWEEN 1 AND 128) NOT VALID",
    # One of a group is out: to be had, hidden for a while, or leased. A dead letter's group is data.
    """
    CREATE UNIQUE INDEX jobs_group_out ON holdfast.jobs (topic, tenant, grp)
        WHERE grp IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'leased')
    """,
    # The others wait, the first first.
    "CREATE INDEX jobs_blocked ON holdfast.jobs (topic, tenant, grp, seq) WHERE state = 'blocked'",
    # A group that has live jobs. Who adds to it, and who lets its next job through, locks the row up to commit.
    """
    CREATE TABLE holdfast.groups (
        topic_id integer NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        grp text COLLATE "C" NOT NULL,
        fresh boolean NOT NULL,  -- nobody but who made the row has added to it
        PRIMARY KEY (topic_id, tenant, grp)
    ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
            autovacuum_vacuum_cost_delay = 0)
    """,
    # Groups whose job that was out has gone: written by whoever takes it out, in its transaction, which waits for no
    # lock there; read by `promote`. More than one row for a group is fine.
    """
    CREATE TABLE holdfast.freed_groups (
        id bigint GENERATED ALWAYS AS IDENTITY,
        topic_id integer NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        grp text COLLATE "C" NOT NULL,
        PRIMARY KEY (topic_id, id)
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
            autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0)
    """,
    "ALTER TYPE holdfast.job_event ADD VALUE IF NOT EXISTS 'unblocked'",
    """
    CREATE FUNCTION holdfast.free_group() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) VALUES (OLD.topic_id, OLD.tenant, OLD.grp);
        RETURN NULL;
    END $$
    """,
    # Whatever takes a job out, a statement of today or a later one. Rows without a group fail the condition, which is
    # looked at where they are changed: nothing is queued for them.
    """
    CREATE TRIGGER free_group_of_deleted AFTER DELETE ON holdfast.jobs FOR EACH ROW
        WHEN (OLD.grp IS NOT NULL AND OLD.original_topic IS NULL AND OLD.state IN ('ready', 'scheduled', 'leased'))
        EXECUTE FUNCTION holdfast.free_group()
    """,
    """
    CREATE TRIGGER free_group_of_ended AFTER UPDATE OF state ON holdfast.jobs FOR EACH ROW
        WHEN (OLD.grp IS NOT NULL AND OLD.original_topic IS NULL AND OLD.state IN ('ready', 'scheduled', 'leased')
              AND NEW.state IN ('failed', 'expired'))
        EXECUTE FUNCTION holdfast.free_group()
    """,
    # Lock groups, in one order for all callers, and make those known that have no live job: for this caller these are
    # `fresh`.
    """
    CREATE FUNCTION holdfast.lock_groups(of_id integer, tenants text[], grps text[])
    RETURNS TABLE (tenant text, grp text, fresh boolean)
    LANGUAGE plpgsql AS $$
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
    END $$
    """,
    # Of each of these groups, which the caller has locked in an earlier statement: its first job that waits, if none is
    # out. A job that comes out is ready at a fresh position (ADR 0003), or hidden until its time. A group without jobs
    # is forgotten. One whose first job somebody else has locked is left, and is freed anew: the one behind it must not
    # come out in its place.
    """
    CREATE FUNCTION holdfast.let_next(
        of_topic text, of_id integer, sequence oid, tenants text[], grps text[], OUT ready integer,
        OUT scheduled integer
    )
    LANGUAGE plpgsql AS $$
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
    END $$
    """,
    # Three statements, so that the last one's snapshot is taken once the groups are locked: whoever has added to them
    # is seen, and whoever will adds behind.
    """
    CREATE FUNCTION holdfast.promote(
        of_topic text, of_id integer, sequence oid, most integer, OUT freed integer, OUT ready integer,
        OUT scheduled integer
    )
    LANGUAGE plpgsql AS $$
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
    END $$
    """,
]

DOWN = [
    "DROP FUNCTION holdfast.promote, holdfast.let_next, holdfast.lock_groups",
    "DROP TRIGGER free_group_of_deleted ON holdfast.jobs",
    "DROP TRIGGER free_group_of_ended ON holdfast.jobs",
    "DROP FUNCTION holdfast.free_group",
    "DROP TABLE holdfast.freed_groups",
    "DROP TABLE holdfast.groups",
    "ALTER TABLE holdfast.jobs DROP COLUMN grp",  # and its indexes and check
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
