-- Lock jobs that have no delivery left, or whose holder gives them up, and read what records of them take. Needs a
-- transaction, which holds the locks.
--   $1 topic  $2 seqs, ascending  $3 the lease under which its holder gives the job up, or NULL: not leased any more
--   $4 the topic's max_deliveries, 0 for no end  $5 most bytes of payloads and metadata (the first comes whatever it weighs)
-- One row a job, in the order of $2: `ord`, its place there (from 1); `tid`, its place in the table; tag, producer,
-- payload and its content type, metadata with where the job came from, and `suspect`, whether bury would count
-- it as one. One that was cancelled is left (see cancel_held).   Index: primary key (see ack).
WITH picked AS MATERIALIZED (
    SELECT r.ord, x.* FROM unnest($2::bigint[], $3::uuid[]) WITH ORDINALITY AS r(seq, lease, ord)
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.seq, j.deliveries, j.tag, j.producer, j.payload, j.content_type,
               (coalesce(j.metadata::jsonb, '{}') || jsonb_build_object(
                   '$dead_letter_from', j.topic, '$dead_letter_deliveries', j.deliveries::text,
                   '$dead_letter_src_seq', j.seq::text)
                || CASE WHEN n.crashes > 0 THEN jsonb_build_object('$dead_letter_crashes', n.crashes::text)
                        ELSE '{}' END)::json
                   AS metadata,
               n.crashed AND n.crashes = 2 AS suspect
        FROM holdfast.jobs j
        CROSS JOIN LATERAL (SELECT j.state::text = 'leased' AND r.lease IS NULL AS crashed) c
        CROSS JOIN LATERAL (SELECT c.crashed, j.crashes + c.crashed::integer AS crashes) n
        WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text IN ('leased', 'scheduled') AND j.cancelled_at IS NULL
          AND CASE WHEN r.lease IS NULL
                   THEN j.visible_at < now() AND coalesce(j.max_deliveries, $4::integer) > 0
                        AND j.deliveries >= coalesce(j.max_deliveries, $4::integer)
                   ELSE j.state::text = 'leased' AND j.lease_id = r.lease AND j.visible_at >= now() END
        FOR UPDATE OF j
    ) x
), weighed AS (
    SELECT p.*, sum(octet_length(p.payload) + octet_length(p.metadata::text)) OVER (ORDER BY p.ord) AS weight
    FROM picked p
)
SELECT w.ord, w.tid, w.tag, w.producer, w.metadata, w.payload, w.content_type, w.suspect FROM weighed w
WHERE w.weight <= $5::bigint OR w.ord = (SELECT min(ord) FROM picked)
ORDER BY w.ord
