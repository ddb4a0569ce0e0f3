-- Topics that have jobs with a time to live, whether or not it has passed.   $1 only those after this name
--   $2 most topics
-- One row a topic, by name: its name, and whether the first of those times has passed.   Index: jobs_expiring, of which
-- one entry a topic is looked at.
WITH RECURSIVE first AS (
    SELECT f.topic, f.expires_at, 1 AS n FROM (
        SELECT j.topic, j.expires_at FROM holdfast.jobs j
        WHERE j.topic > $1 AND j.expires_at IS NOT NULL AND j.state IN ('ready', 'scheduled', 'blocked', 'leased')
        ORDER BY j.topic, j.expires_at LIMIT 1
    ) f
    UNION ALL
    SELECT f.topic, f.expires_at, p.n + 1 FROM first p CROSS JOIN LATERAL (
        SELECT j.topic, j.expires_at FROM holdfast.jobs j
        WHERE j.topic > p.topic AND j.expires_at IS NOT NULL AND j.state IN ('ready', 'scheduled', 'blocked', 'leased')
        ORDER BY j.topic, j.expires_at LIMIT 1
    ) f
    WHERE p.n < $2::integer
)
SELECT topic, expires_at <= now() AS due FROM first
