-- Deletes what time has made too old, and what is above caps that were lowered: `most` records at most. Answers how
-- many went.
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
