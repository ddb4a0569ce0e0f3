-- Keep when topics were last read and written to.
--   $1 their ids  $2 when they were read, $3 written to, in ms since 1970 by the caller's clock, NULL for not; one each
--   $4 its ms now
-- A clock that is off by less than a second counts as right, so that what was shown before stays what it was. Never back.
-- A topic that was deleted is left out: the lock on its row keeps a deletion waiting.
INSERT INTO holdfast.topic_reads AS u (topic_id, read_at, written_at)
SELECT live.id, to_timestamp(live.read_ms / 1000.0) + clock.off_by, to_timestamp(live.written_ms / 1000.0) + clock.off_by
FROM
    (
        SELECT t.id, n.read_ms, n.written_ms
        FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS n(id, read_ms, written_ms)
        JOIN holdfast.topics t ON t.id = n.id ORDER BY t.id FOR KEY SHARE OF t
    ) live,
    (
        SELECT CASE WHEN c.off_by NOT BETWEEN '-1 s' AND '1 s' THEN c.off_by ELSE '0' END AS off_by
        FROM (SELECT clock_timestamp() - to_timestamp($4::bigint / 1000.0) AS off_by) c
    ) clock
ON CONFLICT (topic_id) DO UPDATE
SET read_at = greatest(u.read_at, excluded.read_at), written_at = greatest(u.written_at, excluded.written_at)
