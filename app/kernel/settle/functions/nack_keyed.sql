-- Returns jobs with keys. Locks the rows by seq, as every verb does, then handles the keys in the order of an enqueue.
-- `updated_at` stays: it is the age of the payload, and the newer payload wins. `refunds` is the limit on given-back
-- deliveries of each job; with NULL the delivery is always given back.
CREATE OR REPLACE FUNCTION holdfast.nack_keyed(
    of_topic text, given bigint[], leases uuid[], nodes text[], delays_ms bigint[], errors text[],
    refunds smallint[], backoff json, OUT done integer[], OUT superseded integer[], OUT refunded integer[],
    OUT delays bigint[]
)
LANGUAGE plpgsql
AS $$
DECLARE
    r record;
    p record;
    job holdfast.jobs;
    lease uuid;
    holder text;
    fits boolean;
    given_back boolean;
    delay bigint;
    id integer;
    n_ready integer := 0;
    n_scheduled integer := 0;
    n_blocked integer := 0;
    n_leased integer := 0;
    n_bytes bigint := 0;
BEGIN
    done := '{}';
    superseded := '{}';
    refunded := '{}';
    delays := '{}';
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
          AND j.cancelled_at IS NULL
          AND (r.lease IS NULL OR j.lease_id = r.lease) AND (r.node IS NULL OR j.node = r.node)
        RETURNING j.* INTO job;
        CONTINUE WHEN NOT FOUND;
        done := done || r.ord::integer;
        id := job.topic_id;
        n_leased := n_leased - 1;
        lease := job.lease_id;
        holder := job.node;
        job.state := 'scheduled';
        given_back := r.refund IS NULL OR job.refunds < r.refund;
        IF given_back AND r.refund IS NOT NULL THEN
            job.refunds := job.refunds + 1;
            refunded := refunded || r.ord::integer;
        END IF;
        delay := coalesce(r.delay_ms, CASE WHEN given_back THEN 0
                                           ELSE holdfast.backoff_ms(backoff, job.deliveries) END, 0);
        job.visible_at := clock_timestamp() + delay * interval '1 ms';
        job.lease_id := NULL;
        job.node := NULL;
        job.deliveries := job.deliveries - given_back::integer;
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
                delays := delays || delay;
                INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, until,
                                                   detail, began_at, tenant)
                VALUES (of_topic, id, job.seq, 'released', job.deliveries, lease, holder,
                        job.visible_at, r.error, job.leased_at, nullif(job.tenant, ''));
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
END $$;
