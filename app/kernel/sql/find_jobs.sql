-- The jobs of a topic that match, in the order of their seqs.
--   $1   topic
--   $2   topic id
--   $3   seqs to choose from, or NULL for all jobs
--   $4   whether the oldest come first
--   $5   after this seq, in that order
--   $6   most jobs to read
--   $7   most jobs to return
--   Filters, NULL for any:
--   $8   states, by the database's clock
--   $9   tenant; a dead letter's is the one it had before
--   $10  tag
--   $11  key
--   $12  group
--   $13  enqueued so many ms ago, or earlier
--   $14  priority
--   $15  node of the holder
--   $16  a part of the last error
--   $17  enqueued by then
-- Answers one row: their seqs, in that order; looked, how many jobs were read; last_seq, the last of them.
-- Index: primary key.
WITH looked AS MATERIALIZED (
    (SELECT j.seq FROM holdfast.jobs j
     WHERE $3::bigint[] IS NULL AND $4::boolean AND j.topic = $1 AND j.seq > $5::bigint
     ORDER BY j.seq LIMIT $6::integer)
    UNION ALL
    (SELECT j.seq FROM holdfast.jobs j
     WHERE $3::bigint[] IS NULL AND NOT $4::boolean AND j.topic = $1 AND j.seq < $5::bigint
     ORDER BY j.seq DESC LIMIT $6::integer)
    UNION ALL
    SELECT s.seq FROM unnest($3::bigint[]) AS s(seq)
    WHERE CASE WHEN $4::boolean THEN s.seq > $5::bigint ELSE s.seq < $5::bigint END
), found AS MATERIALIZED (
    SELECT l.seq FROM (
        SELECT seq FROM looked ORDER BY CASE WHEN $4::boolean THEN seq ELSE -seq END
    ) l CROSS JOIN LATERAL (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = l.seq
          AND ($8::text[] IS NULL
               OR holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) = ANY ($8::text[]))
          AND ($9::text IS NULL OR coalesce(j.original_tenant, j.tenant) = $9::text) AND ($10::text IS NULL OR j.tag = $10::text)
          AND ($11::text IS NULL OR j.key = $11::text) AND ($12::text IS NULL OR coalesce(j.grp, j.left_grp) = $12::text)
          AND ($13::bigint IS NULL OR j.created_at <= now() - $13::bigint * interval '1 ms')
          AND ($14::smallint IS NULL OR j.priority = $14::smallint)
          AND ($15::text IS NULL OR (j.node = $15::text AND j.state::text = 'leased' AND j.visible_at >= now()))
          AND ($16::text IS NULL OR strpos(j.last_error, $16::text) > 0)
          AND ($17::timestamptz IS NULL OR j.created_at <= $17::timestamptz)
        LIMIT 1
    ) x
    LIMIT $7::integer
)
SELECT array(SELECT f.seq FROM found f ORDER BY CASE WHEN $4::boolean THEN f.seq ELSE -f.seq END) AS seqs,
       (SELECT count(*) FROM looked) AS looked,
       (SELECT CASE WHEN $4::boolean THEN max(l.seq) ELSE min(l.seq) END FROM looked l) AS last_seq
