-- name: failure_places
-- Where the failed jobs of a topic may be.
--   $1  topic's name
--   $2  dead-letter topic's name, or NULL
--   $3  sources to look for at most
-- One row for each place: topic, where the jobs are; failed_in, the topic that they failed in; now, the time up to which a
-- purge deletes.   Index: jobs_failures.
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

-- name: failures
-- A topic's failures by cluster, largest first: all failed jobs and dead letters in the topic, and the topic's dead letters
-- in its dead-letter topic.
--   $1  topic's name
--   $2  dead-letter topic's name, or NULL
--   $3  only jobs that failed at or after this time
--   $4  clusters to look at in each of the two topics at most
--   $5  jobs to count at most, shared by the clusters
--   $6  rows at most
-- One row for each cluster: count (at_least: there may be more), the first and last time in ms since 1970, deliveries, the
-- newest job and its error, and cut: there may be clusters that were not looked at.
-- Steps from cluster to cluster in the index and counts its entries. Reads one job for each row.   Index: jobs_failures.
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

-- name: purge_cluster
-- Delete a batch of a cluster's jobs, including leased ones.
--   $1  name of the topic that they are in
--   $2  name of the topic that they failed in
--   $3  cluster
--   $4  only after the place with this time
--   $5  and this seq
--   $6  only jobs that failed by this time
--   $7  jobs to search at most
-- One row:
--   deleted            how many were deleted
--   ready, in_flight   how many of those were in these states
--   picked             how many were locked; if more than deleted, another verb changed one: the caller repeats the batch
--   last_at, last_seq  the place of the last job searched, NULL at the end
-- Locks in the order of seqs.   Indexes: jobs_failures, primary key.
WITH looked AS MATERIALIZED (
    SELECT j.failed_at, j.seq FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.failed_in = $2::text AND j.cluster = $3::text AND j.cluster IS NOT NULL
      AND (j.failed_at, j.seq) > ($4::timestamptz, $5::bigint) AND j.failed_at <= $6::timestamptz
    ORDER BY j.failed_at, j.seq LIMIT $7::integer
), picked AS MATERIALIZED (
    SELECT x.* FROM (SELECT o.seq FROM looked o ORDER BY o.seq) l CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.state::text AS was, j.state::text = 'leased' AND j.visible_at >= now() AS held,
               j.lease_id, j.node
        FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq = l.seq AND j.cluster = $3::text
        FOR UPDATE
    ) x
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.was, p.held, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
    SELECT $1, topic_id, seq, 'deleted', deliveries, lease_id, node, 'was ' || was FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, failed, expired, bytes)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'),
           -count(*) FILTER (WHERE was = 'failed'), -count(*) FILTER (WHERE was = 'expired'),
           -coalesce(sum(bytes) FILTER (WHERE was NOT IN ('failed', 'expired')), 0)
    FROM done HAVING count(*) > 0
), last AS (
    SELECT o.failed_at, o.seq FROM looked o ORDER BY o.failed_at DESC, o.seq DESC LIMIT 1
)
SELECT (SELECT count(*) FROM done) AS deleted, (SELECT count(*) FROM done d WHERE d.was = 'ready') AS ready,
       (SELECT count(*) FROM done d WHERE d.held) AS in_flight, (SELECT count(*) FROM picked) AS picked,
       (SELECT l.failed_at FROM last l) AS last_at, (SELECT l.seq FROM last l) AS last_seq
