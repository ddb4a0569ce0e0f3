"""Jobs with a key: at most one of them waits, and is updated in place.

Revision ID: 0010
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

UP = [
    # Not valid: it holds for what is written from now on, and what is there has no key. No scan under the lock.
    'ALTER TABLE holdfast.jobs ADD COLUMN key text COLLATE "C"',
    """
    ALTER TABLE holdfast.jobs ADD CONSTRAINT jobs_key_check CHECK (char_length(key) BETWEEN 1 AND 256) NOT VALID
    """,
    # A dead letter's key is data: two of them may have the same.
    """
    CREATE UNIQUE INDEX jobs_pending_key ON holdfast.jobs (topic, tenant, key)
        WHERE key IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'blocked')
    """,
    # Leases by key, for those that have ended; and every job of a key, state by state.
    "CREATE INDEX jobs_keyed ON holdfast.jobs (topic, state, tenant, key, seq) WHERE key IS NOT NULL",
    "ALTER TYPE holdfast.job_event ADD VALUE IF NOT EXISTS 'updated'",
    "ALTER TYPE holdfast.job_event ADD VALUE IF NOT EXISTS 'superseded'",
    # The pending job of a key, locked; nulls where there is none. One that has outlived its time is none: it is marked
    # as expired on the way, or it would swallow what is written into it.
    """
    CREATE FUNCTION holdfast.lock_pending(
        of_topic text, of_tenant text, of_key text,
        OUT seq bigint, OUT state holdfast.job_state, OUT updated_at timestamptz, OUT deliveries integer,
        OUT bytes bigint
    )
    LANGUAGE plpgsql AS $$
    DECLARE
        id integer;
        end_at timestamptz;
    BEGIN
        SELECT j.seq, j.state, j.updated_at, j.deliveries, octet_length(j.payload), j.topic_id, j.expires_at
        INTO seq, state, updated_at, deliveries, bytes, id, end_at
        FROM holdfast.jobs j
        WHERE j.topic = of_topic AND j.tenant = of_tenant AND j.key = of_key AND j.original_topic IS NULL
          AND j.state IN ('ready', 'scheduled', 'blocked')
        FOR UPDATE;
        IF end_at <= clock_timestamp() THEN
            UPDATE holdfast.jobs j SET state = 'expired', updated_at = clock_timestamp()
            WHERE j.topic = of_topic AND j.seq = lock_pending.seq;
            INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries)
            VALUES (of_topic, id, seq, 'expired', deliveries);
            INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, expired, bytes)
            VALUES (id, -(state = 'ready')::integer, -(state = 'scheduled')::integer, -(state = 'blocked')::integer, 1,
                    -bytes);
            seq := NULL;
        END IF;
    END $$
    """,
    # Put a job that was taken out of the table back as a pending one; false if its key has one by now, which may have
    # been committed while this waited. An UPDATE would fail then.
    """
    CREATE FUNCTION holdfast.put_pending(job holdfast.jobs) RETURNS boolean
    LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO holdfast.jobs VALUES (job.*)
        ON CONFLICT (topic, tenant, key)
            WHERE key IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'blocked')
        DO NOTHING;
        RETURN FOUND;
    END $$
    """,
    # Keys one after the other, in one order for all callers: whoever waits holds only keys that come before.
    # `keys` has an entry for each payload; NULL is a job without one.
    """
    CREATE FUNCTION holdfast.enqueue_keyed(
        of_topic text, of_id integer, sequence oid, payloads bytea[], tags text[], producers text[], metadata json[],
        tenants text[], priorities smallint[], delays_ms bigint[], run_ats timestamptz[], ttls_ms bigint[],
        limits integer[], types text[], keys text[], topic_ttl_ms bigint, ends boolean, most_deliveries integer,
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
        n_ready integer := 0;
        n_scheduled integer := 0;
        n_leased integer := 0;
        n_bytes bigint := 0;
    BEGIN
        -- Locks the sequence to the end of the transaction, as nextval does: the topic's deletion waits for it.
        head_seq := coalesce(pg_sequence_last_value(sequence::regclass), 0);
        at := clock_timestamp();  -- once the lock is held: no time is written that lies before it (ADR 0012)
        ready := 0;
        due := 0;
        touched := 0;
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
                   u.most, u.key COLLATE "C" AS key, u.type, u.ord
            FROM unnest(payloads, tags, producers, metadata, tenants, priorities, delays_ms, run_ats, ttls_ms, limits,
                        types, keys)
                WITH ORDINALITY AS u(payload, tag, producer, meta, tenant, priority, delay_ms, run_at, ttl_ms, most,
                                     type, key, ord)
            WHERE u.key IS NULL OR lasts[u.ord]
            ORDER BY 5, 10, u.ord
        LOOP
            starts := CASE WHEN r.starts_at > at THEN r.starts_at END;
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
                                           payload, content_type, key)
                VALUES (of_topic, of_id, drawn[r.ord], drawn[r.ord],
                        CASE WHEN starts IS NULL THEN 'ready' ELSE 'scheduled' END::holdfast.job_state, r.tenant,
                        coalesce(r.priority, 0::smallint), coalesce(starts, at), at, clock_timestamp(), r.ends_at,
                        r.most, r.tag, r.producer, r.meta, r.payload, r.type, r.key)
                ON CONFLICT (topic, tenant, key)
                    WHERE key IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'blocked')
                DO NOTHING;
                IF FOUND THEN
                    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, node, until)
                    VALUES (of_topic, of_id, drawn[r.ord], 'enqueued', 0, r.producer, starts);
                    n_ready := n_ready + (starts IS NULL)::integer;
                    n_scheduled := n_scheduled + (starts IS NOT NULL)::integer;
                    n_bytes := n_bytes + octet_length(r.payload);
                    ready := ready + (starts IS NULL)::integer;
                    seqs[r.ord] := drawn[r.ord];
                    EXIT;
                END IF;
            END LOOP;
            IF seqs[r.ord] IS NULL THEN
                RAISE serialization_failure USING MESSAGE = 'a pending job came and went each time';
            END IF;
            head_seq := greatest(head_seq, seqs[r.ord]);
        END LOOP;
        INSERT INTO holdfast.tallies (topic_id, ready, scheduled, leased, bytes)
        SELECT of_id, n_ready, n_scheduled, n_leased, n_bytes
        WHERE (n_ready, n_scheduled, n_leased, n_bytes) <> (0, 0, 0, 0);
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
    # The rows are locked by seq, as by every verb; then the keys are gone through as in an enqueue. updated_at stays:
    # it says how old the payload is.
    """
    CREATE FUNCTION holdfast.nack_keyed(
        of_topic text, given bigint[], leases uuid[], nodes text[], delays_ms bigint[], errors text[],
        refunds boolean[], OUT done integer[], OUT superseded integer[]
    )
    LANGUAGE plpgsql AS $$
    DECLARE
        r record;
        p record;
        job holdfast.jobs;
        lease uuid;
        holder text;
        fits boolean;
        id integer;
        n_ready integer := 0;
        n_scheduled integer := 0;
        n_blocked integer := 0;
        n_leased integer := 0;
        n_bytes bigint := 0;
    BEGIN
        done := '{}';
        superseded := '{}';
        PERFORM x.seq FROM unnest(given) WITH ORDINALITY AS a(seq, ord) CROSS JOIN LATERAL (
            SELECT j.seq FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.seq = a.seq AND j.state::text = 'leased' FOR UPDATE
        ) x;
        FOR r IN
            SELECT a.*, x.tenant, x.key
            FROM unnest(given, leases, nodes, delays_ms, errors, refunds)
                WITH ORDINALITY AS a(seq, lease, node, delay_ms, error, refund, ord)
            CROSS JOIN LATERAL (
                SELECT j.tenant, j.key FROM holdfast.jobs j WHERE j.topic = of_topic AND j.seq = a.seq OFFSET 0
            ) x
            ORDER BY x.tenant, x.key, a.seq
        LOOP
            DELETE FROM holdfast.jobs j
            WHERE j.topic = of_topic AND j.seq = r.seq AND j.state::text = 'leased' AND j.visible_at >= now()
              AND (r.lease IS NULL OR j.lease_id = r.lease) AND (r.node IS NULL OR j.node = r.node)
            RETURNING j.* INTO job;
            CONTINUE WHEN NOT FOUND;
            done := done || r.ord::integer;
            id := job.topic_id;
            n_leased := n_leased - 1;
            lease := job.lease_id;
            holder := job.node;
            job.state := 'scheduled';
            job.visible_at := clock_timestamp() + r.delay_ms * interval '1 ms';
            job.lease_id := NULL;
            job.node := NULL;
            job.deliveries := job.deliveries - r.refund::integer;
            job.last_error := coalesce(r.error, job.last_error);
            fits := false;
            FOR attempt IN 1..100 LOOP
                p := holdfast.lock_pending(of_topic, job.tenant, job.key);
                IF p.seq IS NOT NULL THEN
                    IF p.updated_at >= job.updated_at OR job.expires_at <= clock_timestamp() THEN
                        superseded := superseded || r.ord::integer;
                        n_bytes := n_bytes - octet_length(job.payload);
                        INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node,
                                                           detail)
                        VALUES (of_topic, id, job.seq, 'superseded', job.deliveries, lease, holder,
                                'by ' || p.seq);
                        fits := true;
                        EXIT;
                    END IF;
                    DELETE FROM holdfast.jobs j WHERE j.topic = of_topic AND j.seq = p.seq;
                    n_ready := n_ready - (p.state = 'ready')::integer;
                    n_scheduled := n_scheduled - (p.state = 'scheduled')::integer;
                    n_blocked := n_blocked - (p.state = 'blocked')::integer;
                    n_bytes := n_bytes - p.bytes;
                    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, detail)
                    VALUES (of_topic, id, p.seq, 'superseded', p.deliveries, 'by ' || job.seq);
                END IF;
                IF holdfast.put_pending(job) THEN
                    n_scheduled := n_scheduled + 1;
                    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, until,
                                                       detail)
                    VALUES (of_topic, id, job.seq, 'released', job.deliveries, lease, holder,
                            job.visible_at, r.error);
                    fits := true;
                    EXIT;
                END IF;
            END LOOP;
            IF NOT fits THEN
                RAISE serialization_failure USING MESSAGE = 'a pending job came and went each time';
            END IF;
        END LOOP;
        INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes)
        SELECT id, n_ready, n_scheduled, n_blocked, n_leased, n_bytes WHERE n_leased < 0;
    END $$
    """,
]

# The ledger's words stay: an enum can't lose one.
DOWN = [
    "DROP FUNCTION holdfast.nack_keyed, holdfast.enqueue_keyed, holdfast.put_pending, holdfast.lock_pending",
    "DROP INDEX holdfast.jobs_keyed, holdfast.jobs_pending_key",
    "ALTER TABLE holdfast.jobs DROP COLUMN key",
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
