-- Topics that the archive has rows of, and from when to when those lie that are to be deleted.
--   $1, $2 after this topic: a name and an id  $3 most topics  $4 days that are kept, or NULL for all
--   $5 whether days are kept as files: then rows stay until their day is
-- `since`: what is older goes with its day, by tomorrow. A topic that was deleted has nothing left to keep, in files either.
-- Index: archive_finished; a look for each topic, however many rows it has.
WITH RECURSIVE found AS (
    SELECT $1::text COLLATE "C" AS topic, $2::integer AS topic_id, 0 AS place
    UNION ALL
    SELECT n.topic, n.topic_id, f.place + 1 FROM found f CROSS JOIN LATERAL (
        SELECT a.topic, a.topic_id FROM holdfast.archive a
        WHERE (a.topic, a.topic_id) > (f.topic, f.topic_id) AND f.place < $3::integer
        ORDER BY a.topic, a.topic_id LIMIT 1
    ) n
)
SELECT f.topic, f.topic_id,
       CASE WHEN t.id IS NULL OR $4::integer IS NULL THEN 'epoch'
            ELSE (date_trunc('day', now() AT TIME ZONE 'UTC') - ($4::integer - 1) * interval '1 day') AT TIME ZONE 'UTC'
       END AS since,
       CASE WHEN t.id IS NULL THEN now() WHEN t.replay_window_ms = 0 THEN 'epoch'
            ELSE least(now() - t.replay_window_ms * interval '1 ms', (
                SELECT min(d.day)::timestamp AT TIME ZONE 'UTC' FROM holdfast.day_partitions d
                WHERE $5::boolean AND d.of_table = 'archive' AND NOT d.archived)) END AS before
FROM found f LEFT JOIN holdfast.topics t ON t.name = f.topic AND t.id = f.topic_id
WHERE f.place > 0 ORDER BY f.place
