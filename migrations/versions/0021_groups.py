"""Groups: of each, one job is out at a time, in the order of enqueueing. docs/adr/0033 has the argument.

Revision ID: 0021
"""

import runpy
from pathlib import Path

from alembic import op

revision = "0021"
down_revision = "0018"
branch_labels = None
depends_on = None


def _as_made(migration: str, function: str) -> str:
    """The statement with which an earlier migration makes a function."""
    made = runpy.run_path(str(Path(__file__).with_name(migration)))["UP"]
    [statement] = [one for one in made if f"CREATE FUNCTION holdfast.{function}(" in one]
    return str(statement)


COMPLETE = _as_made("0015_sql_functions.py", "complete").replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")

UP = [
    # Not valid: it holds for what is written from now on, and what is there has no group. No scan under the lock.
    'ALTER TABLE holdfast.jobs ADD COLUMN grp text COLLATE "C"',
    "ALTER TABLE holdfast.jobs ADD CONSTRAINT jobs_grp_check CHECK (char_length(grp) BETWEEN 1 AND 128) NOT VALID",
    # A replay puts a job back into its group.
    'ALTER TABLE holdfast.archive ADD COLUMN grp text COLLATE "C"',
    COMPLETE.replace("\\:", ":")
    .replace("first_topic_id, first_seq)", "first_topic_id, first_seq, grp)")
    .replace("job.first_seq\n", "job.first_seq, job.grp\n"),
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
    # Lock groups, in one order for all callers, and make those known that have no live job: these are `fresh`.
    """
    CREATE FUNCTION holdfast.lock_groups(of_id integer, tenants text[], grps text[])
    RETURNS TABLE (tenant text, grp text, fresh boolean)
    LANGUAGE plpgsql AS $$
    #variable_conflict use_column
    BEGIN
        RETURN QUERY
        INSERT INTO holdfast.groups AS g (topic_id, tenant, grp)
        SELECT of_id, o.tenant, o.grp
        FROM (SELECT DISTINCT coalesce(u.tenant, '') COLLATE "C" AS tenant, u.grp COLLATE "C" AS grp
              FROM unnest(tenants, grps) AS u(tenant, grp) WHERE u.grp IS NOT NULL) o
        ORDER BY o.tenant, o.grp
        ON CONFLICT (topic_id, tenant, grp) DO UPDATE SET topic_id = excluded.topic_id
        RETURNING g.tenant, g.grp, g.xmax = 0;
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
            CROSS JOIN LATERAL (
                SELECT j.ctid AS tid FROM holdfast.jobs j
                WHERE j.topic = of_topic AND j.seq = i.seq AND j.state::text = 'blocked'
                LIMIT 1 FOR UPDATE SKIP LOCKED
            ) x
        ), done AS (
            UPDATE holdfast.jobs j
            SET state = CASE WHEN j.visible_at > clock_timestamp() THEN 'scheduled' ELSE 'ready'
                        END::holdfast.job_state,
                position = nextval(sequence::regclass)
            FROM picked p WHERE j.ctid = p.tid
            RETURNING j.tenant, j.grp, j.seq, j.state, j.visible_at, j.deliveries
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
            SELECT of_id, i.tenant, i.grp FROM idle i
            WHERE i.seq IS NOT NULL AND NOT EXISTS (SELECT 1 FROM done d WHERE d.tenant = i.tenant AND d.grp = i.grp)
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
    "DROP FUNCTION holdfast.enqueue_keyed",
    """
    CREATE FUNCTION holdfast.enqueue_keyed(
        of_topic text, of_id integer, sequence oid, payloads bytea[], tags text[], producers text[], metadata json[],
        tenants text[], priorities smallint[], delays_ms bigint[], run_ats timestamptz[], ttls_ms bigint[],
        limits integer[], types text[], keys text[], topic_ttl_ms bigint, ends boolean, most_deliveries integer,
        grps text[] DEFAULT '{}',
        OUT seqs bigint[], OUT updated boolean[], OUT head_seq bigint, OUT ready integer, OUT due integer,
        OUT touched integer
    )
    LANGUAGE plpgsql AS $$
    DECLARE
        at timestamptz;
        drawn bigint[];
        lasts boolean[];
        r record;
        p record;
        job holdfast.jobs;
        lease uuid;
        holder text;
        starts timestamptz;
        changed boolean;
        fresh_tenants text[] := '{}';  -- groups that had no live job: the first of each comes out at once
        fresh_grps text[] := '{}';
        place holdfast.job_state;
        n_ready integer := 0;
        n_scheduled integer := 0;
        n_blocked integer := 0;
        n_leased integer := 0;
        n_bytes bigint := 0;
    BEGIN
        -- Locks the sequence to the end of the transaction, as nextval does: the topic's deletion waits for it.
        head_seq := coalesce(pg_sequence_last_value(sequence::regclass), 0);
        at := clock_timestamp();  -- once the lock is held: no time is written that lies before it (ADR 0012)
        ready := 0;
        due := 0;
        touched := 0;
        -- Groups are locked before seqs are drawn: of one group, those are drawn and committed in one order.
        IF cardinality(grps) > 0 THEN
            SELECT coalesce(array_agg(l.tenant), '{}'), coalesce(array_agg(l.grp), '{}')
            INTO fresh_tenants, fresh_grps
            FROM holdfast.lock_groups(of_id, tenants, grps) l WHERE l.fresh;
        END IF;
        -- Seqs in the order of the batch, for what is new as far as can be seen.
        SELECT array_agg(d.seq ORDER BY d.ord), array_agg(d.is_last ORDER BY d.ord) INTO drawn, lasts
        FROM (
            SELECT b.ord, b.is_last,
                   CASE WHEN b.key IS NULL OR (b.is_last AND known.seq IS NULL) THEN nextval(sequence::regclass) END
                       AS seq
            FROM (
                SELECT u.key, coalesce(u.tenant, '') AS tenant, u.ord,
                       u.ord = max(u.ord) OVER (PARTITION BY coalesce(u.tenant, ''), u.key) AS is_last
                FROM unnest(keys, tenants) WITH ORDINALITY AS u(key, tenant, ord)
                ORDER BY u.ord
            ) b
            LEFT JOIN LATERAL (
                SELECT j.seq FROM holdfast.jobs j
                WHERE j.topic = of_topic AND j.tenant = b.tenant AND j.key = b.key AND j.original_topic IS NULL
                  AND j.state IN ('ready', 'scheduled', 'blocked')
                LIMIT 1
            ) known ON true
        ) d;
        seqs := array_fill(NULL::bigint, ARRAY[cardinality(keys)]);
        updated := array_fill(false, ARRAY[cardinality(keys)]);
        FOR r IN
            SELECT u.payload, u.tag, u.producer, u.meta, coalesce(u.tenant, '') COLLATE "C" AS tenant, u.priority,
                   greatest(u.run_at, at + u.delay_ms * interval '1 ms') AS starts_at,
                   at + nullif(coalesce(u.ttl_ms, topic_ttl_ms), 0) * interval '1 ms' AS ends_at,
                   u.most, u.key COLLATE "C" AS key, u.type, u.grp,
                   f.grp IS NOT NULL
                       AND u.ord = min(u.ord) OVER (PARTITION BY coalesce(u.tenant, ''), u.grp) AS leads,
                   u.ord
            FROM unnest(payloads, tags, producers, metadata, tenants, priorities, delays_ms, run_ats, ttls_ms, limits,
                        types, keys, grps)
                WITH ORDINALITY AS u(payload, tag, producer, meta, tenant, priority, delay_ms, run_at, ttl_ms, most,
                                     type, key, grp, ord)
            LEFT JOIN unnest(fresh_tenants, fresh_grps) AS f(tenant, grp)
                ON f.tenant = coalesce(u.tenant, '') AND f.grp = u.grp
            WHERE u.key IS NULL OR lasts[u.ord]
            ORDER BY 5, 10, u.ord
        LOOP
            starts := CASE WHEN r.starts_at > at THEN r.starts_at END;
            place := CASE WHEN r.grp IS NOT NULL AND NOT r.leads THEN 'blocked'
                          WHEN starts IS NULL THEN 'ready' ELSE 'scheduled' END;
            FOR attempt IN 1..100 LOOP
                changed := false;
                IF r.key IS NOT NULL THEN
                    p := holdfast.lock_pending(of_topic, r.tenant, r.key);
                    IF p.seq IS NOT NULL THEN
                        UPDATE holdfast.jobs j
                        SET payload = r.payload, content_type = r.type, metadata = r.meta,
                            updated_at = clock_timestamp()
                        WHERE j.topic = of_topic AND j.seq = p.seq;
                        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries)
                        VALUES (of_topic, of_id, p.seq, 'updated', p.deliveries);
                        n_bytes := n_bytes + octet_length(r.payload) - p.bytes;
                        touched := touched + 1;
                        seqs[r.ord] := p.seq;
                        updated[r.ord] := true;
                        EXIT;
                    END IF;
                    -- A lease that has ended counts as pending, unless its job is on its way out. One that somebody has
                    -- locked is being claimed or settled: to wait for that would be out of order, since holders' verbs
                    -- lock by seq, and not by key.
                    SELECT j.* INTO job FROM holdfast.jobs j
                    WHERE j.topic = of_topic AND j.state = 'leased' AND j.tenant = r.tenant AND j.key = r.key
                      AND j.original_topic IS NULL AND j.visible_at < clock_timestamp()
                      AND (j.expires_at IS NULL OR j.expires_at > clock_timestamp())
                      AND NOT (ends AND coalesce(j.max_deliveries, most_deliveries) > 0
                               AND j.deliveries >= coalesce(j.max_deliveries, most_deliveries))
                    ORDER BY j.updated_at DESC, j.seq DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
                    IF FOUND THEN
                        DELETE FROM holdfast.jobs j WHERE j.topic = of_topic AND j.seq = job.seq;
                        n_leased := n_leased - 1;
                        n_bytes := n_bytes - octet_length(job.payload);
                        lease := job.lease_id;
                        holder := job.node;
                        job.payload := r.payload;
                        job.content_type := r.type;
                        job.metadata := r.meta;
                        job.updated_at := clock_timestamp();
                        job.visible_at := job.updated_at;
                        job.state := 'scheduled';
                        job.lease_id := NULL;
                        job.node := NULL;
                        changed := holdfast.put_pending(job);
                        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node,
                                                           until)
                        VALUES (of_topic, of_id, job.seq,
                                CASE WHEN changed THEN 'updated' ELSE 'superseded' END::holdfast.job_event,
                                job.deliveries, lease, holder, CASE WHEN changed THEN job.visible_at END);
                        IF changed THEN
                            n_scheduled := n_scheduled + 1;
                            n_bytes := n_bytes + octet_length(r.payload);
                            due := due + 1;
                            seqs[r.ord] := job.seq;
                            updated[r.ord] := true;
                            EXIT;
                        END IF;
                        CONTINUE;  -- somebody was faster: there is a pending one now
                    END IF;
                END IF;
                IF drawn[r.ord] IS NULL THEN
                    drawn[r.ord] := nextval(sequence::regclass);
                END IF;
                INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, priority, visible_at,
                                           created_at, updated_at, expires_at, max_deliveries, tag, producer, metadata,
                                           payload, content_type, key, grp)
                VALUES (of_topic, of_id, drawn[r.ord], drawn[r.ord],
                        place, r.tenant,
                        coalesce(r.priority, 0::smallint), coalesce(starts, at), at, clock_timestamp(), r.ends_at,
                        r.most, r.tag, r.producer, r.meta, r.payload, r.type, r.key, r.grp)
                ON CONFLICT (topic, tenant, key)
                    WHERE key IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'blocked')
                DO NOTHING;
                IF FOUND THEN
                    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, node, until, detail)
                    VALUES (of_topic, of_id, drawn[r.ord], 'enqueued', 0, r.producer, starts,
                            CASE WHEN place = 'blocked' THEN 'blocked' END);
                    n_ready := n_ready + (place = 'ready')::integer;
                    n_scheduled := n_scheduled + (place = 'scheduled')::integer;
                    n_blocked := n_blocked + (place = 'blocked')::integer;
                    n_bytes := n_bytes + octet_length(r.payload);
                    ready := ready + (place = 'ready')::integer;
                    seqs[r.ord] := drawn[r.ord];
                    EXIT;
                END IF;
            END LOOP;
            IF seqs[r.ord] IS NULL THEN
                RAISE serialization_failure USING MESSAGE = 'a pending job came and went each time';
            END IF;
            head_seq := greatest(head_seq, seqs[r.ord]);
        END LOOP;
        INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes)
        SELECT of_id, n_ready, n_scheduled, n_blocked, n_leased, n_bytes
        WHERE (n_ready, n_scheduled, n_blocked, n_leased, n_bytes) <> (0, 0, 0, 0, 0);
        IF cardinality(fresh_grps) > 0 AND num_nonnulls(VARIADIC keys) > 0 THEN
            -- Where the first of a fresh group was written into a pending job, the next one comes out, if any.
            SELECT enqueue_keyed.ready + n.ready INTO ready
            FROM holdfast.let_next(of_topic, of_id, sequence, fresh_tenants, fresh_grps) n;
        END IF;
        IF false = ANY (lasts) THEN
            -- Of several with one key, the last one counts; the others were there before it, one after the other.
            SELECT array_agg(s.seq ORDER BY s.ord), array_agg(s.changed ORDER BY s.ord) INTO seqs, updated
            FROM (
                SELECT u.ord,
                       CASE WHEN u.key IS NULL THEN u.seq ELSE max(u.seq) OVER w END AS seq,
                       u.key IS NOT NULL AND (bool_or(u.changed) OVER w OR u.ord > min(u.ord) OVER w) AS changed
                FROM unnest(keys, tenants, seqs, updated) WITH ORDINALITY AS u(key, tenant, seq, changed, ord)
                WINDOW w AS (PARTITION BY coalesce(u.tenant, ''), u.key)
            ) s;
        END IF;
    END $$
    """,
    """
    CREATE OR REPLACE FUNCTION holdfast.requeue(
        of_topic text, of_id integer, given bigint[], only_from text, starts text[], default_ttl_ms bigint
    )
    RETURNS TABLE (
        given_seq bigint, outcome text, to_topic text, to_id integer, to_seq bigint, id_topic integer, id_seq bigint,
        was text
    )
    LANGUAGE plpgsql AS $$
    DECLARE
        r record;
        p record;
        kept holdfast.jobs;
        job holdfast.jobs;
        held_name text;    -- the topic that the next three are of
        held_id integer;   -- NULL: there is no such queue
        held_ttl bigint;
        held_sequence oid;
        n_scheduled integer := 0;
        n_blocked integer := 0;
        n_bytes bigint := 0;
        at timestamptz;
        out_states text[] := '{}';
        out_bytes bigint := 0;
        size bigint;
    BEGIN
        -- Groups before jobs. The job comes back as blocked, and whoever lets the next of its group through sees it.
        FOR r IN
            SELECT t.name, t.id, array_agg(coalesce(j.original_tenant, j.tenant)) AS tenants, array_agg(j.grp) AS grps
            FROM unnest(given) AS a(seq)
            CROSS JOIN LATERAL (
                SELECT coalesce(i.original_topic, i.topic) COLLATE "C" AS target, i.original_tenant, i.tenant, i.grp
                FROM holdfast.jobs i WHERE i.topic = of_topic AND i.seq = a.seq AND i.topic_id = of_id OFFSET 0
            ) j
            JOIN holdfast.topics t ON t.name = j.target AND t.type = 'queue'
            WHERE j.grp IS NOT NULL GROUP BY t.name, t.id ORDER BY t.id
        LOOP
            WITH locked AS (SELECT l.* FROM holdfast.lock_groups(r.id, r.tenants, r.grps) l)
            INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) SELECT r.id, l.tenant, l.grp FROM locked l;
        END LOOP;
        PERFORM x.seq FROM unnest(given) WITH ORDINALITY AS a(seq, ord) CROSS JOIN LATERAL (
            SELECT j.seq FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.seq = a.seq AND j.topic_id = of_id FOR UPDATE
        ) x;
        FOR r IN
            SELECT a.seq, x.target, x.tenant, x.key
            FROM unnest(given) AS a(seq)
            CROSS JOIN LATERAL (
                SELECT coalesce(j.original_topic, j.topic) COLLATE "C" AS target,
                       coalesce(j.original_tenant, j.tenant) COLLATE "C" AS tenant, j.key COLLATE "C" AS key
                FROM holdfast.jobs j
                WHERE j.topic = of_topic AND j.seq = a.seq AND j.topic_id = of_id
                  AND (j.state::text IN ('failed', 'expired')
                       OR (j.original_topic IS NOT NULL AND (j.state::text <> 'leased' OR j.visible_at < now())))
                  AND (only_from IS NULL OR j.original_topic = only_from)
                  AND (cardinality(starts) = 0
                       OR EXISTS (SELECT 1 FROM unnest(starts) AS s(s)
                                  WHERE starts_with(coalesce(j.original_topic, j.topic) || '$', s.s)))
                OFFSET 0
            ) x
            ORDER BY x.target, x.tenant, x.key, a.seq
        LOOP
            given_seq := r.seq;
            to_topic := r.target;
            to_id := NULL;
            to_seq := NULL;
            id_topic := NULL;
            id_seq := NULL;
            was := NULL;
            IF held_name IS DISTINCT FROM r.target THEN
                INSERT INTO holdfast.tallies (topic_id, scheduled, blocked, bytes)
                SELECT held_id, n_scheduled, n_blocked, n_bytes WHERE n_scheduled + n_blocked > 0;
                n_scheduled := 0;
                n_blocked := 0;
                n_bytes := 0;
                held_name := r.target;
                SELECT t.id, t.ttl_ms INTO held_id, held_ttl FROM holdfast.topics t
                WHERE t.name = r.target AND t.type = 'queue';
                IF held_id IS NOT NULL THEN
                    -- Locks the sequence to the end of the transaction, as nextval does: the topic's deletion waits
                    -- for it. Raises undefined_object where one was first.
                    held_sequence := to_regclass(format('holdfast.%I', 'seq_' || held_id));
                    IF held_sequence IS NULL THEN
                        RAISE undefined_object USING MESSAGE = format('topic %s was deleted', r.target);
                    END IF;
                    PERFORM pg_sequence_last_value(held_sequence::regclass);
                END IF;
            END IF;
            IF held_id IS NULL THEN
                outcome := 'topic_gone';
                RETURN NEXT;
                CONTINUE;
            END IF;
            IF r.key IS NOT NULL THEN
                p := holdfast.lock_pending(r.target, r.tenant, r.key);
                IF p.seq IS NOT NULL THEN
                    outcome := 'key_conflict';
                    RETURN NEXT;
                    CONTINUE;
                END IF;
            END IF;
            DELETE FROM holdfast.jobs j WHERE j.topic = of_topic AND j.seq = r.seq RETURNING j.* INTO kept;
            at := clock_timestamp();
            size := octet_length(kept.payload);
            job := kept;
            job.topic := r.target;
            job.topic_id := held_id;
            job.tenant := r.tenant;
            IF kept.original_topic IS NOT NULL THEN
                job.max_deliveries := kept.original_max_deliveries;
                IF kept.first_topic_id = held_id THEN
                    job.seq := kept.first_seq;
                    job.first_topic_id := NULL;
                    job.first_seq := NULL;
                ELSE
                    job.seq := nextval(held_sequence::regclass);
                END IF;
                job.position := job.seq;
            ELSIF kept.ttl_ms IS NULL THEN
                job.ttl_ms := coalesce((extract(epoch FROM kept.expires_at - kept.created_at) * 1000)::bigint, 0);
            END IF;
            job.state := CASE WHEN job.grp IS NULL THEN 'scheduled' ELSE 'blocked' END;
            job.visible_at := at;
            job.expires_at := at + nullif(coalesce(job.ttl_ms, held_ttl, default_ttl_ms), 0) * interval '1 ms';
            -- Of a key, the newer payload lives on, and this one is as old as the job.
            job.updated_at := CASE WHEN r.key IS NULL THEN at ELSE kept.created_at END;
            job.deliveries := 0;
            job.lease_id := NULL;
            job.node := NULL;
            job.leased_at := NULL;
            job.original_topic := NULL;
            job.original_seq := NULL;
            job.original_deliveries := NULL;
            job.original_tenant := NULL;
            job.original_max_deliveries := NULL;
            job.dlq_moved_at := NULL;
            INSERT INTO holdfast.lanes (topic, tenant, priority)
            SELECT job.topic, job.tenant, job.priority
            WHERE NOT EXISTS (SELECT 1 FROM holdfast.lanes l
                              WHERE l.topic = job.topic AND l.tenant = job.tenant AND l.priority = job.priority)
            ON CONFLICT DO NOTHING;
            IF NOT holdfast.put_pending(job) THEN
                INSERT INTO holdfast.jobs VALUES (kept.*);  -- somebody was faster: it stays where it was
                outcome := 'key_conflict';
                RETURN NEXT;
                CONTINUE;
            END IF;
            IF kept.original_topic IS NOT NULL THEN
                INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
                VALUES (of_topic, of_id, kept.seq, 'requeued', kept.deliveries, kept.lease_id, kept.node,
                        'to ' || job.topic || ' ' || job.seq);
            END IF;
            INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, until, detail)
            VALUES (job.topic, job.topic_id, job.seq, 'requeued', 0, job.visible_at,
                    CASE WHEN kept.original_topic IS NOT NULL THEN 'from ' || of_topic || ' ' || kept.seq
                         ELSE 'was ' || kept.state END);
            n_scheduled := n_scheduled + (job.grp IS NULL)::integer;
            n_blocked := n_blocked + (job.grp IS NOT NULL)::integer;
            n_bytes := n_bytes + size;
            out_states := out_states || kept.state::text;
            out_bytes := out_bytes + CASE WHEN kept.state IN ('failed', 'expired') THEN 0 ELSE size END;
            outcome := 'requeued';
            to_id := job.topic_id;
            to_seq := job.seq;
            id_topic := coalesce(job.first_topic_id, job.topic_id);
            id_seq := coalesce(job.first_seq, job.seq);
            was := kept.state;
            RETURN NEXT;
        END LOOP;
        INSERT INTO holdfast.tallies (topic_id, scheduled, blocked, bytes)
        SELECT held_id, n_scheduled, n_blocked, n_bytes WHERE n_scheduled + n_blocked > 0;
        INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, failed, expired, bytes)
        SELECT of_id, -count(*) FILTER (WHERE o.s = 'ready'), -count(*) FILTER (WHERE o.s = 'scheduled'),
               -count(*) FILTER (WHERE o.s = 'blocked'), -count(*) FILTER (WHERE o.s = 'leased'),
               -count(*) FILTER (WHERE o.s = 'failed'), -count(*) FILTER (WHERE o.s = 'expired'), -out_bytes
        FROM unnest(out_states) AS o(s) HAVING count(*) > 0;
    END $$
    """,
    """
    ALTER TABLE holdfast.inbox ADD CONSTRAINT "topic: .fifo asks for groups, which the inbox does not take"
        CHECK (topic NOT LIKE '%.fifo')
    """,
]

DOWN = [
    'ALTER TABLE holdfast.inbox DROP CONSTRAINT "topic: .fifo asks for groups, which the inbox does not take"',
    _as_made("0017_requeue.py", "requeue").replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"),
    "DROP FUNCTION holdfast.enqueue_keyed",
    _as_made("0010_keyed_jobs.py", "enqueue_keyed"),
    "DROP FUNCTION holdfast.promote, holdfast.let_next, holdfast.lock_groups",
    "DROP TRIGGER free_group_of_deleted ON holdfast.jobs",
    "DROP TRIGGER free_group_of_ended ON holdfast.jobs",
    "DROP FUNCTION holdfast.free_group",
    "DROP TABLE holdfast.freed_groups",
    "DROP TABLE holdfast.groups",
    "DROP INDEX holdfast.jobs_blocked",
    COMPLETE,
    "ALTER TABLE holdfast.archive DROP COLUMN grp",
    "ALTER TABLE holdfast.jobs DROP COLUMN grp",  # and its index and check
]


def upgrade() -> None:
    connection = op.get_bind()
    for statement in UP:
        connection.exec_driver_sql(statement)  # as it stands: a % in a pattern is no parameter


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
