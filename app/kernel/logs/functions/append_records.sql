-- Appends several callers' batches, one after the other, each with an outcome of its own: 'written', 'deduped' (its
-- key is known: the seqs of then) or 'full'. `sizes`, `weights` and `keys` have an entry for each caller.
CREATE OR REPLACE FUNCTION holdfast.append_records(
    of_topic text, of_id integer, payloads bytea[], tags text[], nodes text[], metadata json[], sizes integer[],
    weights bigint[], keys text[], cap_records bigint, cap_bytes bigint, rejects boolean, ttl_ms bigint,
    window_ms bigint, OUT outcomes text[], OUT firsts bigint[], OUT lasts bigint[], OUT head_seq bigint,
    OUT earliest_seq bigint
)
LANGUAGE plpgsql
AS $$
DECLARE
    s holdfast.log_state := holdfast.lock_log(of_topic, of_id);
    -- Never back, whatever the clock does: what is too old is always the front of the log.
    now_at timestamptz := greatest(clock_timestamp(), s.written_at);
    too_old timestamptz := CASE WHEN ttl_ms > 0 THEN now_at - ttl_ms * interval '1 ms' ELSE '-infinity' END;
    place bigint := 0;   -- records of the callers so far
    taken bigint := 0;   -- of them, those that are written
    weight bigint := 0;  -- and their bytes
    shifts bigint[];     -- what leads from a record's place to its seq; NULL where the caller is refused
    callers integer[];
    known record;
BEGIN
    IF rejects AND ttl_ms > 0 THEN
        s := holdfast.trim_front(s, 0, 0, too_old, 2 * cardinality(payloads) + 5000);
    END IF;
    FOR i IN 1..cardinality(sizes) LOOP
        firsts[i] := 0;
        lasts[i] := 0;
        shifts[i] := NULL;
        place := place + sizes[i];
        IF keys[i] IS NOT NULL THEN
            SELECT k.first_seq, k.last_seq INTO known FROM holdfast.idempotency k
            WHERE k.topic = of_topic AND k.key = keys[i] AND k.expires_at > now_at;
            IF FOUND THEN
                outcomes[i] := 'deduped';
                firsts[i] := known.first_seq;
                lasts[i] := known.last_seq;
                CONTINUE;
            END IF;
        END IF;
        IF rejects AND ((cap_records > 0 AND s.count + taken + sizes[i] > cap_records)
                        OR (cap_bytes > 0 AND s.bytes + weight + weights[i] > cap_bytes)) THEN
            outcomes[i] := 'full';
            CONTINUE;
        END IF;
        outcomes[i] := 'written';
        firsts[i] := s.head_seq + taken + 1;
        shifts[i] := s.head_seq + taken - (place - sizes[i]);
        taken := taken + sizes[i];
        weight := weight + weights[i];
        lasts[i] := s.head_seq + taken;
        IF keys[i] IS NOT NULL AND window_ms > 0 THEN
            INSERT INTO holdfast.idempotency AS k (topic, topic_id, key, expires_at, first_seq, last_seq)
            VALUES (of_topic, of_id, keys[i], now_at + window_ms * interval '1 ms', firsts[i], lasts[i])
            ON CONFLICT (topic, key) DO UPDATE
            SET topic_id = excluded.topic_id, expires_at = excluded.expires_at, first_seq = excluded.first_seq,
                last_seq = excluded.last_seq, seqs = NULL;
        END IF;
    END LOOP;
    IF taken = place THEN
        INSERT INTO holdfast.records (topic, topic_id, seq, created_at, tag, node, metadata, payload)
        SELECT of_topic, of_id, s.head_seq + r.ord, now_at, r.tag, r.node, r.metadata, r.payload
        FROM unnest(payloads, tags, nodes, metadata)
            WITH ORDINALITY AS r(payload, tag, node, metadata, ord);
    ELSIF taken > 0 THEN
        SELECT array_agg(c.i ORDER BY c.i) INTO callers
        FROM unnest(sizes) WITH ORDINALITY AS c(size, i) CROSS JOIN generate_series(1, c.size);
        INSERT INTO holdfast.records (topic, topic_id, seq, created_at, tag, node, metadata, payload)
        SELECT of_topic, of_id, shifts[callers[r.ord]] + r.ord, now_at, r.tag, r.node, r.metadata, r.payload
        FROM unnest(payloads, tags, nodes, metadata)
            WITH ORDINALITY AS r(payload, tag, node, metadata, ord)
        WHERE shifts[callers[r.ord]] IS NOT NULL;
    END IF;
    IF taken > 0 THEN
        s.head_seq := s.head_seq + taken;
        s.count := s.count + taken;
        s.bytes := s.bytes + weight;
        s.written_at := now_at;
        IF ttl_ms > 0 OR (NOT rejects AND ((cap_records > 0 AND s.count > cap_records)
                                           OR (cap_bytes > 0 AND s.bytes > cap_bytes))) THEN
            s := holdfast.trim_front(
                s,
                CASE WHEN cap_records > 0 AND NOT rejects THEN s.count - cap_records ELSE 0 END,
                CASE WHEN cap_bytes > 0 AND NOT rejects THEN s.bytes - cap_bytes ELSE 0 END,
                too_old, 2 * taken + 5000);
        END IF;
        PERFORM holdfast.write_log_state(s);
    END IF;
    head_seq := s.head_seq;
    earliest_seq := s.earliest_seq;
END $$;
