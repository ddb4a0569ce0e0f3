-- The next dead letters of a topic that match, those that have been dead for longest first.
--   $1 the topic that they are in  $2 its id  $3, $4 after this place: a time and a seq  $5 dead by then
--   $6 only those of this topic, or NULL  $7 only those of topics whose names start with one of these, none for all
--   $8 their error contains this, or NULL  $9 tag, or NULL  $10 key, or NULL  $11 tenant, or NULL
--   $12 most jobs to look at  $13 most that match  $14 cluster, or NULL
-- Answers one row: seqs, ascending; more, whether there may be others behind; last_time and last_seq, the place to go on
-- after, NULL where there was nothing. What is under a good lease is passed.   Index: jobs_dead.
WITH looked AS MATERIALIZED (
    SELECT j.seq, j.dlq_moved_at AS at,
           (j.state::text <> 'leased' OR j.visible_at < now()) AND j.topic_id = $2::integer
           AND ($6::text IS NULL OR j.original_topic = $6::text) AND
           ($8::text IS NULL OR strpos(j.last_error, $8::text) > 0) AND ($9::text IS NULL OR j.tag = $9::text)
           AND ($10::text IS NULL OR j.key = $10::text) AND ($14::text IS NULL OR j.cluster = $14::text)
           AND ($11::text IS NULL OR coalesce(j.original_tenant, j.tenant) = $11::text)
           AND (cardinality($7::text[]) = 0
                OR EXISTS (SELECT 1 FROM unnest($7::text[]) AS s(s)
                           WHERE starts_with(coalesce(j.original_topic, j.topic) || '$', s.s))) AS fits
    FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.dlq_moved_at IS NOT NULL AND j.dlq_moved_at >= $3::timestamptz
      AND (j.dlq_moved_at, j.seq) > ($3::timestamptz, $4::bigint) AND j.dlq_moved_at <= $5::timestamptz
    ORDER BY j.dlq_moved_at, j.seq LIMIT $12::integer
), hits AS MATERIALIZED (
    SELECT l.seq, l.at FROM looked l WHERE l.fits ORDER BY l.at, l.seq LIMIT $13::integer
), last AS (
    SELECT h.at, h.seq FROM hits h WHERE (SELECT count(*) FROM hits) = $13::integer
    UNION ALL
    SELECT l.at, l.seq FROM looked l WHERE (SELECT count(*) FROM hits) < $13::integer
)
SELECT array(SELECT h.seq FROM hits h ORDER BY h.seq) AS seqs,
       (SELECT count(*) FROM hits) = $13::integer OR (SELECT count(*) FROM looked) = $12::integer AS more,
       (SELECT max(l.at) FROM last l) AS last_time,
       (SELECT max(l.seq) FROM last l WHERE l.at = (SELECT max(n.at) FROM last n)) AS last_seq
