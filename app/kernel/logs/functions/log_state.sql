-- How far a log goes: one change after the other, under one lock, for append_records, trim_log and delete_records.

-- Appends, deletions and trims of one log happen one after the other, up to commit: seqs are contiguous, and appear in
-- order. The first number keeps these locks apart from others.
CREATE OR REPLACE FUNCTION holdfast.lock_log(of_topic text, of_id integer) RETURNS holdfast.log_state
LANGUAGE plpgsql
AS $$
DECLARE
    s holdfast.log_state;
BEGIN
    PERFORM pg_advisory_xact_lock(1819240306, of_id);
    -- A statement of its own: its snapshot is taken once the lock is held.
    SELECT * INTO s FROM holdfast.log_state l
    WHERE l.topic = of_topic AND l.topic_id = of_id ORDER BY l.version DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE undefined_object USING MESSAGE = format('there is no log %s with id %s', of_topic, of_id);
    END IF;
    RETURN s;
END $$;

-- Writes the next version of the state and deletes the one before, rather than update it: versions that can't be
-- cleaned up, while somebody holds an old snapshot, lie behind the newest in the index and are never walked over.
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

-- Deletes the records that are older than `before`, and then the oldest until the log is smaller by `spare_records`
-- and `spare_bytes`; `most` at most. Walks from earliest_seq, never over what went before. Answers the state to be
-- written.
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
