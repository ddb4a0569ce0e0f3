-- Enqueues jobs with dedupe ids, and batches with idempotency keys. Locks first the batches' keys, then the ids, each
-- in the same order for all callers, so a caller that waits holds only rows that come before. `sizes` and `batch_keys`
-- have an entry for each caller, `keys` has one for each payload. A dedupe id that begins with U+001F counts in all
-- groups of its tenant, any other in the record's group.
--
-- ON CONFLICT DO UPDATE waits for a transaction that writes the same row, and then decides by the committed row. If its
-- WHERE is false, the row stays unchanged but locked, and the next statement's snapshot sees it. DO NOTHING would not
-- lock it (ADR 0025).
CREATE OR REPLACE FUNCTION holdfast.enqueue_deduped(
    of_topic text, of_id integer, sequence oid, payloads bytea[], tags text[], producers text[], metadata json[],
    tenants text[], priorities smallint[], delays_ms bigint[], run_ats timestamptz[], ttls_ms bigint[],
    limits integer[], types text[], keys text[], topic_ttl_ms bigint, ends boolean, most_deliveries integer,
    grps text[], dedupe_ids text[], window_ms bigint, sizes integer[], batch_keys text[], batch_window_ms bigint
) RETURNS TABLE (
    seqs bigint[], updated boolean[], head_seq bigint, ready integer, due integer, touched integer,
    duplicate boolean[], repeated boolean
)
LANGUAGE plpgsql
AS $$
DECLARE
    total integer := cardinality(payloads);
    wrote boolean[] := array_fill(false, ARRAY[cardinality(sizes)]);  -- by caller: whether its key is new
    dropped boolean[] := array_fill(false, ARRAY[total]);             -- by record: whether it is a duplicate
    jobs bigint[] := array_fill(NULL::bigint, ARRAY[total]);          -- by record: its job
    changed boolean[] := array_fill(false, ARRAY[total]);
    leaders integer[] := array_fill(NULL::integer, ARRAY[total]);     -- by record: the first one with its id
    claims tid[] := array_fill(NULL::tid, ARRAY[total]);              -- by first record: the row of its id
    kept integer[];
    drawn bigint[];
    renewed boolean[];
    place integer := 0;
    newest bigint;
    r record;
    p record;
BEGIN
    -- Locks the sequence until the end of the transaction, as nextval does, so the topic's deletion waits.
    head_seq := coalesce(pg_sequence_last_value(sequence::regclass), 0);
    ready := 0;
    due := 0;
    touched := 0;
    FOR r IN
        SELECT c.key COLLATE "C" AS key, c.ord, c.size, sum(c.size) OVER (ORDER BY c.ord) AS upto
        FROM unnest(batch_keys, sizes) WITH ORDINALITY AS c(key, size, ord)
        ORDER BY 1, 2
    LOOP
        CONTINUE WHEN r.key IS NULL;
        INSERT INTO holdfast.idempotency AS k (topic, topic_id, key, expires_at, first_seq, last_seq)
        VALUES (of_topic, of_id, r.key, clock_timestamp() + batch_window_ms * interval '1 ms', 0, 0)
        ON CONFLICT (topic, key) DO UPDATE SET topic_id = excluded.topic_id, expires_at = excluded.expires_at
        WHERE k.expires_at <= clock_timestamp() OR k.topic_id <> excluded.topic_id;
        wrote[r.ord] := FOUND;
        IF NOT FOUND THEN
            FOR i IN r.upto - r.size + 1..r.upto LOOP
                dropped[i] := true;
            END LOOP;
        END IF;
    END LOOP;
    -- A new row has its record's place as a negative number until its seq is known.
    INSERT INTO holdfast.dedupe AS d (topic_id, tenant, grp, dedupe_id, seq, expires_at)
    SELECT of_id, coalesce(u.tenant, '') COLLATE "C",
           CASE WHEN starts_with(u.id, E'\x1f') THEN '' ELSE coalesce(u.grp, '') END COLLATE "C", u.id COLLATE "C",
           -min(u.ord), clock_timestamp() + window_ms * interval '1 ms'
    FROM unnest(dedupe_ids, tenants, grps) WITH ORDINALITY AS u(id, tenant, grp, ord)
    WHERE u.id IS NOT NULL AND NOT dropped[u.ord]
    GROUP BY 2, 3, 4
    ORDER BY 2, 3, 4
    ON CONFLICT (topic_id, tenant, grp, dedupe_id) DO UPDATE
    SET seq = excluded.seq, expires_at = excluded.expires_at
    WHERE d.expires_at <= clock_timestamp();
    FOR r IN
        SELECT u.ord, x.tid, x.seq
        FROM unnest(dedupe_ids, tenants, grps) WITH ORDINALITY AS u(id, tenant, grp, ord)
        CROSS JOIN LATERAL (
            SELECT d.ctid AS tid, d.seq FROM holdfast.dedupe d
            WHERE d.topic_id = of_id AND d.tenant = coalesce(u.tenant, '')
              AND d.grp = CASE WHEN starts_with(u.id, E'\x1f') THEN '' ELSE coalesce(u.grp, '') END
              AND d.dedupe_id = u.id
            OFFSET 0
        ) x
        WHERE u.id IS NOT NULL AND NOT dropped[u.ord]
    LOOP
        IF r.seq = -r.ord THEN
            claims[r.ord] := r.tid;
            CONTINUE;
        ELSIF r.seq < 0 THEN
            leaders[r.ord] := -r.seq;
        ELSE
            jobs[r.ord] := r.seq;
        END IF;
        dropped[r.ord] := true;
    END LOOP;
    kept := array(SELECT n FROM generate_series(1, total) AS n WHERE NOT dropped[n] ORDER BY n);
    IF cardinality(kept) < total THEN
        SELECT array_agg(u.payload ORDER BY u.ord), array_agg(u.tag ORDER BY u.ord),
               array_agg(u.producer ORDER BY u.ord), array_agg(u.meta ORDER BY u.ord),
               array_agg(u.tenant ORDER BY u.ord), array_agg(u.priority ORDER BY u.ord),
               array_agg(u.delay_ms ORDER BY u.ord), array_agg(u.run_at ORDER BY u.ord),
               array_agg(u.ttl_ms ORDER BY u.ord), array_agg(u.most ORDER BY u.ord),
               array_agg(u.type ORDER BY u.ord), array_agg(u.key ORDER BY u.ord),
               CASE WHEN cardinality(grps) > 0 THEN array_agg(u.grp ORDER BY u.ord) ELSE grps END
        INTO payloads, tags, producers, metadata, tenants, priorities, delays_ms, run_ats, ttls_ms, limits, types,
             keys, grps
        FROM unnest(payloads, tags, producers, metadata, tenants, priorities, delays_ms, run_ats, ttls_ms, limits,
                    types, keys, grps)
            WITH ORDINALITY AS u(payload, tag, producer, meta, tenant, priority, delay_ms, run_at, ttl_ms, most,
                                 type, key, grp, ord)
        WHERE NOT dropped[u.ord];
    END IF;
    IF cardinality(kept) > 0 THEN
        IF array_remove(keys, NULL) = '{}' AND array_remove(grps, NULL) = '{}' THEN
            SELECT e.seqs INTO drawn
            FROM holdfast.enqueue_plain(
                of_topic, of_id, sequence, payloads, tags, producers, metadata, tenants, priorities, delays_ms,
                run_ats, ttls_ms, limits, types, topic_ttl_ms) AS e(seqs);
            head_seq := drawn[cardinality(drawn)];
            ready := cardinality(kept) - (SELECT count(*) FROM unnest(delays_ms) AS u(ms) WHERE u.ms > 0);
        ELSE
            p := holdfast.enqueue_keyed(
                of_topic, of_id, sequence, payloads, tags, producers, metadata, tenants, priorities, delays_ms,
                run_ats, ttls_ms, limits, types, keys, topic_ttl_ms, ends, most_deliveries, grps);
            drawn := p.seqs;
            renewed := p.updated;
            head_seq := p.head_seq;
            ready := p.ready;
            due := p.due;
            touched := p.touched;
        END IF;
        FOR r IN SELECT u.* FROM unnest(kept, drawn, renewed) AS u(place, seq, updated) LOOP
            jobs[r.place] := r.seq;
            changed[r.place] := coalesce(r.updated, false);
        END LOOP;
        UPDATE holdfast.dedupe d SET seq = u.seq
        FROM unnest(kept, drawn) AS u(place, seq) WHERE d.ctid = claims[u.place];
    END IF;
    FOR i IN 1..total LOOP
        IF leaders[i] IS NOT NULL THEN
            jobs[i] := jobs[leaders[i]];
        END IF;
    END LOOP;
    place := 0;
    newest := head_seq;
    FOR i IN 1..cardinality(sizes) LOOP
        head_seq := newest;
        seqs := jobs[place + 1:place + sizes[i]];
        updated := changed[place + 1:place + sizes[i]];
        duplicate := dropped[place + 1:place + sizes[i]];
        place := place + sizes[i];
        repeated := batch_keys[i] IS NOT NULL AND NOT wrote[i];
        IF repeated THEN
            SELECT k.seqs, coalesce(k.head_seq, 0) INTO STRICT seqs, head_seq
            FROM holdfast.idempotency k
            WHERE k.topic = of_topic AND k.key = batch_keys[i];
        ELSIF wrote[i] THEN
            UPDATE holdfast.idempotency k
            SET first_seq = enqueue_deduped.seqs[1], last_seq = enqueue_deduped.seqs[sizes[i]],
                seqs = enqueue_deduped.seqs, head_seq = newest
            WHERE k.topic = of_topic AND k.key = batch_keys[i];
        END IF;
        RETURN NEXT;
        ready := 0;
        due := 0;
        touched := 0;
    END LOOP;
END $$;
