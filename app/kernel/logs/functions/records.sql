-- The state of a log, and its changes by append_records, trim_log and delete_records, one after the other under one
-- lock.

-- Serializes appends, deletions and trims of a log until commit, so seqs are contiguous and become visible in order.
-- The first number keeps these locks apart from others.
CREATE OR REPLACE FUNCTION holdfast.lock_log(of_topic text, of_id integer) RETURNS holdfast.log_state
LANGUAGE plpgsql
AS $$
DECLARE
    s holdfast.log_state;
BEGIN
    PERFORM pg_advisory_xact_lock(1819240306, of_id);
    -- A statement of its own, so that its snapshot is taken after the lock.
    SELECT * INTO s FROM holdfast.log_state l
    WHERE l.topic = of_topic AND l.topic_id = of_id ORDER BY l.version DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE undefined_object USING MESSAGE = format('there is no log %s with id %s', of_topic, of_id);
    END IF;
    RETURN s;
END $$;

-- Inserts the next version of the state and deletes the one before, instead of an update: old versions that can't be
-- cleaned up while an old snapshot is open are behind the newest one in the index, and are never read.
CREATE OR REPLACE FUNCTION holdfast.write_log_state(s holdfast.log_state) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO holdfast.log_state (topic, topic_id, version, head_seq, earliest_seq, count, bytes, cap_lost_to,
                                    ttl_lost_to, written_at)
    VALUES (s.topic, s.topic_id, s.version + 1, s.head_seq, s.earliest_seq, s.count, s.bytes, s.cap_lost_to,
            s.ttl_lost_to, s.written_at);
    DELETE FROM holdfast.log_state l
    WHERE l.topic = s.topic AND l.topic_id = s.topic_id AND l.version = s.version;
END $$;

-- Deletes the records older than `before`, and then the oldest ones until the log is smaller by `spare_records` and
-- `spare_bytes`, at most `most`. Reads from earliest_seq on, so never what was deleted before. Returns the new state,
-- which the caller writes.
CREATE OR REPLACE FUNCTION holdfast.trim_front(
    s holdfast.log_state, spare_records bigint, spare_bytes bigint, before timestamptz, most bigint
) RETURNS holdfast.log_state
LANGUAGE plpgsql
AS $$
DECLARE
    oldest record;
    gone bigint := 0;
    gone_bytes bigint := 0;
    through bigint;
BEGIN
    FOR oldest IN
        SELECT r.seq, r.created_at, octet_length(r.payload) + coalesce(octet_length(r.metadata::text), 0) AS size
        FROM holdfast.records r
        WHERE r.topic = s.topic AND r.seq >= s.earliest_seq AND r.seq <= s.head_seq ORDER BY r.seq
    LOOP
        EXIT WHEN gone >= most;
        IF oldest.created_at < before THEN
            s.ttl_lost_to := oldest.seq;
        ELSIF gone < spare_records OR gone_bytes < spare_bytes THEN
            s.cap_lost_to := oldest.seq;
        ELSE
            EXIT;
        END IF;
        gone := gone + 1;
        gone_bytes := gone_bytes + oldest.size;
        through := oldest.seq;
    END LOOP;
    IF gone > 0 THEN
        DELETE FROM holdfast.records r
        WHERE r.topic = s.topic AND r.seq >= s.earliest_seq AND r.seq <= through;
        s.count := s.count - gone;
        s.bytes := s.bytes - gone_bytes;
        s.earliest_seq := coalesce((
            SELECT r.seq FROM holdfast.records r
            WHERE r.topic = s.topic AND r.seq > through AND r.seq <= s.head_seq ORDER BY r.seq LIMIT 1
        ), s.head_seq + 1);
    END IF;
    RETURN s;
END $$;

-- Appends the batches of several callers, one after the other. Each has an outcome: 'written', 'deduped' (its key is
-- known: the seqs are those of the first time) or 'full'. `sizes`, `weights` and `keys` have an entry per caller.
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
    -- Never goes back, even if the clock does, so records that are too old are always the first ones.
    now_at timestamptz := greatest(clock_timestamp(), s.written_at);
    too_old timestamptz := CASE WHEN ttl_ms > 0 THEN now_at - ttl_ms * interval '1 ms' ELSE '-infinity' END;
    place bigint := 0;   -- records of the callers so far
    taken bigint := 0;   -- how many of them are written
    weight bigint := 0;  -- the bytes of these
    shifts bigint[];     -- difference of a record's seq and its place; NULL if its caller is refused
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

-- Deletes records that are too old, and records above lowered caps, at most `most`. Returns how many.
CREATE OR REPLACE FUNCTION holdfast.trim_log(
    of_topic text, of_id integer, cap_records bigint, cap_bytes bigint, rejects boolean, ttl_ms bigint, most bigint
) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    s holdfast.log_state := holdfast.lock_log(of_topic, of_id);
    trimmed holdfast.log_state;
BEGIN
    trimmed := holdfast.trim_front(
        s,
        CASE WHEN cap_records > 0 AND NOT rejects THEN s.count - cap_records ELSE 0 END,
        CASE WHEN cap_bytes > 0 AND NOT rejects THEN s.bytes - cap_bytes ELSE 0 END,
        CASE WHEN ttl_ms > 0 THEN clock_timestamp() - ttl_ms * interval '1 ms' ELSE '-infinity' END, most);
    IF trimmed.count < s.count THEN
        PERFORM holdfast.write_log_state(trimmed);
    END IF;
    RETURN s.count - trimmed.count;
END $$;

-- Deletes records up to a seq, with a tag or with tags of a prefix if given, at most `most`, after (after_tag,
-- after_seq). Returns the place of the last one, for the next call.
CREATE OR REPLACE FUNCTION holdfast.delete_records(
    of_topic text, of_id integer, upto bigint, exact text, prefix text, after_tag text, after_seq bigint,
    most integer, OUT deleted bigint, OUT last_tag text, OUT last_seq bigint
)
LANGUAGE plpgsql
AS $$
DECLARE
    s holdfast.log_state := holdfast.lock_log(of_topic, of_id);
    places tid[];
    gone_bytes bigint := 0;
BEGIN
    IF exact IS NOT NULL THEN
        SELECT array_agg(x.place), exact, max(x.seq) INTO places, last_tag, last_seq FROM (
            SELECT r.ctid AS place, r.seq FROM holdfast.records r
            WHERE r.topic = of_topic AND r.tag = exact AND r.seq > after_seq AND r.seq <= upto
            ORDER BY r.seq LIMIT most
        ) x;
    ELSIF prefix IS NOT NULL THEN
        SELECT array_agg(x.place), (array_agg(x.tag ORDER BY x.tag DESC, x.seq DESC))[1],
               (array_agg(x.seq ORDER BY x.tag DESC, x.seq DESC))[1]
        INTO places, last_tag, last_seq FROM (
            SELECT r.ctid AS place, r.tag, r.seq FROM holdfast.records r
            WHERE r.topic = of_topic AND r.tag >= prefix AND r.tag <= prefix || repeat(chr(1114111), 64)
              AND (r.tag, r.seq) > (after_tag, after_seq) AND r.seq <= upto AND starts_with(r.tag, prefix)
            ORDER BY r.tag, r.seq LIMIT most
        ) x;
    ELSE
        SELECT array_agg(x.place), '', max(x.seq) INTO places, last_tag, last_seq FROM (
            SELECT r.ctid AS place, r.seq FROM holdfast.records r
            WHERE r.topic = of_topic AND r.seq >= s.earliest_seq AND r.seq <= upto ORDER BY r.seq LIMIT most
        ) x;
    END IF;
    WITH gone AS (
        DELETE FROM holdfast.records r WHERE r.ctid = ANY (places)
        RETURNING octet_length(r.payload) + coalesce(octet_length(r.metadata::text), 0) AS size
    )
    SELECT count(*), coalesce(sum(g.size), 0) INTO deleted, gone_bytes FROM gone g;
    IF deleted > 0 THEN
        s.count := s.count - deleted;
        s.bytes := s.bytes - gone_bytes;
        s.earliest_seq := coalesce((
            SELECT r.seq FROM holdfast.records r
            WHERE r.topic = of_topic AND r.seq >= s.earliest_seq AND r.seq <= s.head_seq ORDER BY r.seq LIMIT 1
        ), s.head_seq + 1);
        PERFORM holdfast.write_log_state(s);
    END IF;
END $$;
