-- Deletes records up to a seq, and of a tag or of tags with a prefix where one is given: `most` at most, behind
-- (after_tag, after_seq). Answers the place of the last one, for the next call.
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
