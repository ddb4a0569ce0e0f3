-- What jobs of a topic have failed with that are out now, by cluster, the largest first.
--   $1 topic  $2 its dead-letter topic, or NULL  $3 what went out since then
--   $4 most clusters of one source to look at, in each of the two topics  $5 most jobs to count, shared by the clusters
--   $6 most clusters to answer
-- Meant are all that are out in the topic, whichever topic they failed in, and those in its dead-letter topic that
-- failed in it. One row a cluster: count (where at_least, there are more), the first and last time in ms, deliveries,
-- the newest job and its error, and cut: there may be clusters that were not looked at.
-- It steps from cluster to cluster, and counts entries of the index: no job is looked at but one for each answer.
-- Index: jobs_failures.
WITH RECURSIVE t AS (
    SELECT $1::text AS topic, '' AS low, '~' AS high
    UNION ALL
    SELECT $2::text, $1::text, $1::text WHERE $2::text IS NOT NULL
), run AS (
    SELECT t.topic, t.high, x.failed_in, x.cluster, 1 AS place FROM t CROSS JOIN LATERAL (
        SELECT j.failed_in, j.cluster FROM holdfast.jobs j
        WHERE j.topic = t.topic AND j.cluster IS NOT NULL AND j.failed_in >= t.low AND j.failed_in <= t.high
        ORDER BY j.failed_in, j.cluster LIMIT 1
    ) x
    UNION ALL
    SELECT t.topic, t.high, x.failed_in, x.cluster, t.place + 1 FROM run t CROSS JOIN LATERAL (
        SELECT j.failed_in, j.cluster FROM holdfast.jobs j
        WHERE j.topic = t.topic AND j.cluster IS NOT NULL AND (j.failed_in, j.cluster) > (t.failed_in, t.cluster)
          AND j.failed_in <= t.high
        ORDER BY j.failed_in, j.cluster LIMIT 1
    ) x
    WHERE t.place < $4::integer
), share AS MATERIALIZED (
    SELECT greatest($5::integer / greatest(count(*), 1), 100) AS most, coalesce(max(r.place), 0) >= $4::integer AS cut
    FROM run r
), counted AS MATERIALIZED (
    SELECT t.topic, t.failed_in, t.cluster, first.failed_at AS first, c.* FROM run t CROSS JOIN LATERAL (
        SELECT j.failed_at FROM holdfast.jobs j
        WHERE j.topic = t.topic AND j.failed_in = t.failed_in AND j.cluster = t.cluster AND j.cluster IS NOT NULL
          AND j.failed_at >= $3::timestamptz
        ORDER BY j.failed_at LIMIT 1
    ) first CROSS JOIN LATERAL (
        SELECT count(*) AS count, max(e.failed_at) AS last, min(e.deliveries) AS fewest, max(e.deliveries) AS most,
               sum(e.deliveries) AS total
        FROM (
            SELECT j.failed_at,
                   CASE WHEN j.failed_in = t.topic THEN j.deliveries ELSE j.original_deliveries END AS deliveries
            FROM holdfast.jobs j
            WHERE j.topic = t.topic AND j.failed_in = t.failed_in AND j.cluster = t.cluster AND j.cluster IS NOT NULL
              AND j.failed_at >= $3::timestamptz
            ORDER BY j.failed_at DESC LIMIT (SELECT s.most FROM share s)
        ) e
    ) c
), sums AS MATERIALIZED (
    SELECT c.cluster, sum(c.count)::bigint AS count, bool_or(c.count >= s.most) AS at_least, min(c.first) AS first,
           max(c.last) AS last, min(c.fewest) AS fewest, max(c.most) AS most,
           (sum(c.total) / sum(c.count))::float8 AS mean, bool_or(s.cut) AS cut,
           (array_agg(c.topic ORDER BY c.last DESC))[1] AS topic,
           (array_agg(c.failed_in ORDER BY c.last DESC))[1] AS failed_in
    FROM counted c CROSS JOIN share s GROUP BY c.cluster
    ORDER BY sum(c.count) DESC, max(c.last) DESC, c.cluster LIMIT $6::integer
)
SELECT t.cluster, holdfast.error_title(e.last_error) AS title, t.count, t.at_least,
       (date_part('epoch', t.first) * 1000)::bigint AS first_ms, (date_part('epoch', t.last) * 1000)::bigint AS last_ms,
       t.fewest, t.mean, t.most, e.topic, e.seq, e.last_error AS error, t.cut
FROM sums t CROSS JOIN LATERAL (
    SELECT j.topic, j.seq, j.last_error FROM holdfast.jobs j
    WHERE j.topic = t.topic AND j.failed_in = t.failed_in AND j.cluster = t.cluster AND j.cluster IS NOT NULL
    ORDER BY j.failed_at DESC, j.seq DESC LIMIT 1
) e
ORDER BY t.count DESC, t.last DESC, t.cluster
