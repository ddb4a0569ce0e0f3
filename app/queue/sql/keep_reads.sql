-- Keep when topics were last read.   $1 their ids  $2 how many ms ago; one each
-- Never back. A topic that was deleted is left out: the lock on its row keeps a deletion waiting.
INSERT INTO holdfast.topic_reads AS r (topic_id, read_at)
SELECT live.id, clock_timestamp() - live.ago_ms * interval '1 ms'
FROM (
    SELECT t.id, n.ago_ms FROM unnest($1::integer[], $2::bigint[]) AS n(id, ago_ms)
    JOIN holdfast.topics t ON t.id = n.id ORDER BY t.id FOR KEY SHARE OF t
) live
ON CONFLICT (topic_id) DO UPDATE SET read_at = greatest(r.read_at, excluded.read_at)
