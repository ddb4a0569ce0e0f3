-- Read a queue's live jobs after a cursor, up to a seq below which no new job can appear.
--   $1   topic
--   $2   after this seq
--   $3   up to this seq
--   $4   most jobs
--   $5   most bytes of payloads and metadata; the first job is returned whatever its size
--   $6   nodes whose jobs are left out
--   $7   most jobs to read
--   $8   whether to return tags
--   $9   whether to return metadata
--   $10  whether to return payloads
-- Answers one row: expired_to, the last seq up to next_seq of an expired job that is not marked yet, 0 if there is
-- none; next_seq, the last seq that was read; the jobs' columns, NULL if there are no jobs.   Index: primary key.
WITH looked AS MATERIALIZED (
    SELECT j.seq, j.created_at, j.tag, j.producer AS node, j.payload, j.content_type,
           CASE WHEN j.original_topic IS NULL THEN j.metadata ELSE (
               coalesce(j.metadata::jsonb, '{}') || jsonb_build_object(
                   '$dead_letter_from', j.original_topic, '$dead_letter_deliveries', j.original_deliveries::text,
                   '$dead_letter_src_seq', j.original_seq::text)
               || CASE WHEN j.original_crashes > 0
                       THEN jsonb_build_object('$dead_letter_crashes', j.original_crashes::text) ELSE '{}' END)::json
           END AS metadata,
           octet_length(j.payload) + coalesce(octet_length(j.metadata::text), 0) AS size,
           j.state::text NOT IN ('failed', 'expired')
           AND (j.expires_at IS NULL OR j.expires_at > now() OR (j.state::text = 'leased' AND j.visible_at >= now()))
           AND (j.producer = ANY ($6::text[])) IS NOT TRUE AS wanted,
           j.expires_at <= now() AND j.state::text NOT IN ('failed', 'expired') AND j.cancelled_at IS NULL
           AND (j.state::text <> 'leased' OR j.visible_at < now()) AS expired
    FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq > $2::bigint AND j.seq <= $3::bigint
    ORDER BY j.seq LIMIT $7::integer
), found AS MATERIALIZED (
    SELECT f.*, sum(f.size) OVER (ORDER BY f.seq) <= $5::bigint OR f.size = sum(f.size) OVER (ORDER BY f.seq) AS fits
    FROM (SELECT l.* FROM looked l WHERE l.wanted ORDER BY l.seq LIMIT $4::integer) f
), shown AS MATERIALIZED (
    SELECT array_agg(f.seq) AS seqs,
           array_agg((date_part('epoch', f.created_at) * 1000)::bigint) AS times,
           array_agg(f.node) AS nodes,
           array_agg(CASE WHEN $8::boolean THEN f.tag END) AS tags,
           array_agg(CASE WHEN $9::boolean THEN f.metadata END) AS metadata,
           array_agg(CASE WHEN $10::boolean THEN f.payload END) AS payloads,
           array_agg(f.content_type) AS content_types,
           max(f.seq) AS last_seq, count(*) AS n
    FROM (SELECT d.* FROM found d WHERE d.fits ORDER BY d.seq) f  -- sorted once for all columns
)
SELECT coalesce((SELECT max(l.seq) FROM looked l WHERE l.expired AND l.seq <= upto.seq), 0) AS expired_to,
       upto.seq AS next_seq, w.seqs, w.times, w.nodes, w.tags, w.metadata, w.payloads, w.content_types
FROM shown w CROSS JOIN LATERAL (
    SELECT CASE WHEN w.n = $4::integer OR w.n < (SELECT count(*) FROM found) THEN w.last_seq
                WHEN (SELECT count(*) FROM looked) = $7::integer THEN (SELECT max(l.seq) FROM looked l)
                ELSE $3::bigint END AS seq
) upto
