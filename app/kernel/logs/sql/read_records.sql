-- Read a log after a cursor: its state and its records, in one snapshot.
--   $1   topic
--   $2   topic id
--   $3   after this seq; from the start if it is beyond the head
--   $4   most records
--   $5   most bytes of payloads and metadata; the first record is returned whatever its size
--   $6   nodes whose records are left out
--   $7   most seqs to read
--   $8   the topic's TTL in ms, 0 for none
--   $9   whether to return tags
--   $10  whether to return metadata
--   $11  whether to return payloads
-- Answers one row: head_seq; earliest_seq, of records that are not too old (head_seq + 1: there is none); ttl_lost_to
-- and cap_lost_to, the last seqs lost to age and to caps, 0 for none; next_seq, the last seq that was read; the
-- columns. No row: there is no such log. Appends are committed in the order of their seqs, so none comes below next_seq
-- later.
-- Indexes: primary keys, read from earliest_seq on.
WITH state AS MATERIALIZED (
    SELECT l.head_seq, l.earliest_seq, l.cap_lost_to, l.ttl_lost_to,
           CASE WHEN $3::bigint > l.head_seq THEN 0 ELSE $3::bigint END AS after
    FROM holdfast.log_state l WHERE l.topic = $1 AND l.topic_id = $2::integer ORDER BY l.version DESC LIMIT 1
), alive AS MATERIALIZED (
    SELECT s.*, coalesce(first.seq, s.head_seq + 1) AS first_seq
    FROM state s LEFT JOIN LATERAL (
        SELECT r.seq FROM holdfast.records r
        WHERE r.topic = $1 AND r.seq >= s.earliest_seq AND r.seq <= s.head_seq
          AND ($8::bigint = 0 OR r.created_at >= now() - $8::bigint * interval '1 ms')
        ORDER BY r.seq LIMIT 1
    ) first ON true
), reach AS MATERIALIZED (
    SELECT a.*, greatest(a.after, a.first_seq - 1) AS base, least(a.head_seq, next.seq + $7::bigint - 1) AS through
    FROM alive a LEFT JOIN LATERAL (
        SELECT r.seq FROM holdfast.records r
        WHERE r.topic = $1 AND r.seq > greatest(a.after, a.first_seq - 1) AND r.seq <= a.head_seq
        ORDER BY r.seq LIMIT 1
    ) next ON true
), found AS MATERIALIZED (
    SELECT f.*, sum(f.size) OVER (ORDER BY f.seq) <= $5::bigint OR f.size = sum(f.size) OVER (ORDER BY f.seq) AS fits
    FROM reach h CROSS JOIN LATERAL (
        SELECT r.seq, r.created_at, r.tag, r.node, r.metadata, r.payload,
               octet_length(r.payload) + coalesce(octet_length(r.metadata::text), 0) AS size
        FROM holdfast.records r
        WHERE r.topic = $1 AND r.seq > h.base AND r.seq <= h.through AND (r.node = ANY ($6::text[])) IS NOT TRUE
        ORDER BY r.seq LIMIT $4::integer
    ) f
), shown AS MATERIALIZED (
    SELECT array_agg(f.seq) AS seqs,
           array_agg((date_part('epoch', f.created_at) * 1000)::bigint) AS times,
           array_agg(f.node) AS nodes,
           array_agg(CASE WHEN $9::boolean THEN f.tag END) AS tags,
           array_agg(CASE WHEN $10::boolean THEN f.metadata END) AS metadata,
           array_agg(CASE WHEN $11::boolean THEN f.payload END) AS payloads,
           max(f.seq) AS last_seq, count(*) AS n
    FROM (SELECT d.* FROM found d WHERE d.fits ORDER BY d.seq) f  -- sorted once for all columns
)
SELECT h.head_seq, h.first_seq AS earliest_seq, h.cap_lost_to,
       coalesce((SELECT r.seq FROM holdfast.records r  -- too old, but not deleted yet
                 WHERE r.topic = $1 AND r.seq >= h.earliest_seq AND r.seq < h.first_seq
                 ORDER BY r.seq DESC LIMIT 1), h.ttl_lost_to) AS ttl_lost_to,
       CASE WHEN h.through IS NULL THEN h.head_seq
            WHEN w.n = $4::integer OR w.n < (SELECT count(*) FROM found) THEN w.last_seq
            ELSE h.through END AS next_seq,
       w.seqs, w.times, w.nodes, w.tags, w.metadata, w.payloads
FROM reach h CROSS JOIN shown w
