-- Which of a topic's jobs have something in their payloads, in the order in which they are named.
--   $1 topic  $2 topic id  $3 their seqs  $4, $5, $6 what, as holdfast.has_data takes it: keys, ends, values
--   $7 most bytes of payloads to look at: it ends before the job that has more, or behind its first  $8 most to name
-- Answers one row: their seqs, in that order; and last_seq, the last one that was looked at, NULL where all were.
-- Index: primary key.
WITH sized AS MATERIALIZED (
    SELECT l.seq, l.ord, sum(x.bytes) OVER (ORDER BY l.ord) - x.bytes AS before
    FROM unnest($3::bigint[]) WITH ORDINALITY AS l(seq, ord)
    CROSS JOIN LATERAL (
        SELECT octet_length(j.payload) AS bytes FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = l.seq
    ) x
), found AS MATERIALIZED (
    SELECT l.seq, l.ord FROM (SELECT s.seq, s.ord FROM sized s WHERE s.before < $7::bigint ORDER BY s.ord) l
    CROSS JOIN LATERAL (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = l.seq
          AND holdfast.has_data(j.payload, j.content_type, $4::text[], $5::integer[], $6::text[])
        LIMIT 1
    ) x
    LIMIT $8::integer
)
SELECT array(SELECT f.seq FROM found f ORDER BY f.ord) AS seqs,
       (SELECT s.seq FROM sized s
        WHERE s.before < $7::bigint AND EXISTS (SELECT 1 FROM sized n WHERE n.before >= $7::bigint)
        ORDER BY s.ord DESC LIMIT 1) AS last_seq
