-- Topics that have jobs with a key.   $1 only those after this name   $2 most topics
-- One row a topic, by name: its name, and whether one of those jobs is leased.   Index: jobs_keyed, of which two entries a
-- topic are looked at. By its whole order: the planner has no other index to take then.
WITH RECURSIVE keyed AS (
    SELECT f.topic, 1 AS n FROM (
        SELECT j.topic FROM holdfast.jobs j WHERE j.topic > $1 AND j.key IS NOT NULL
        ORDER BY j.topic, j.state, j.tenant, j.key, j.seq LIMIT 1
    ) f
    UNION ALL
    SELECT f.topic, k.n + 1 FROM keyed k CROSS JOIN LATERAL (
        SELECT j.topic FROM holdfast.jobs j WHERE j.topic > k.topic AND j.key IS NOT NULL
        ORDER BY j.topic, j.state, j.tenant, j.key, j.seq LIMIT 1
    ) f
    WHERE k.n < $2::integer
)
SELECT k.topic, l.seq IS NOT NULL AS leased
FROM keyed k
LEFT JOIN LATERAL (
    SELECT j.seq FROM holdfast.jobs j WHERE j.topic = k.topic AND j.state = 'leased' AND j.key IS NOT NULL
    ORDER BY j.tenant, j.key, j.seq LIMIT 1
) l ON true
ORDER BY k.n
