-- Keep when topics were last read.   $1 their ids  $2 ms since 1970 by the caller's clock; one each  $3 its ms now
-- A clock that is off by less than a second counts as right, so that what was shown before stays what it was. Never back. A topic
-- that was deleted is left out: the lock on its row keeps a deletion waiting.
INSERT INTO holdfast.topic_reads AS r (topic_id, read_at)
SELECT
    live.id,
    to_timestamp(live.at_ms / 1000.0) + CASE WHEN clock.off_by NOT BETWEEN '-1 s' AND '1 s' THEN clock.off_by ELSE '0' END
FROM
    (
        SELECT t.id, n.at_ms FROM unnest($1::integer[], $2::bigint[]) AS n(id, at_ms)
        JOIN holdfast.topics t ON t.id = n.id ORDER BY t.id FOR KEY SHARE OF t
    ) live,
    (SELECT clock_timestamp() - to_timestamp($3::bigint / 1000.0) AS off_by) clock
ON CONFLICT (topic_id) DO UPDATE SET read_at = greatest(r.read_at, excluded.read_at)
