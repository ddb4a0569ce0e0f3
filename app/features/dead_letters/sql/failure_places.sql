-- Where jobs may be that failed in a topic, or that are out in it.   $1 topic  $2 its dead-letter topic, or NULL
--   $3 most sources to look for
-- One row a place: a topic, the topic that jobs in it failed in, and now, the time up to which a purge reaches.
-- Index: jobs_failures.
WITH RECURSIVE t AS (
    SELECT $1::text AS topic, '' COLLATE "C" AS failed_in, 0 AS place
    UNION ALL
    SELECT t.topic, x.failed_in, t.place + 1 FROM t CROSS JOIN LATERAL (
        SELECT j.failed_in FROM holdfast.jobs j
        WHERE j.topic = t.topic AND j.cluster IS NOT NULL AND j.failed_in > t.failed_in ORDER BY j.failed_in LIMIT 1
    ) x
    WHERE t.place < $3::integer
)
SELECT t.topic, t.failed_in, now() AS now FROM t WHERE t.place > 0
UNION ALL
SELECT $2::text, $1::text, now() WHERE $2::text IS NOT NULL
