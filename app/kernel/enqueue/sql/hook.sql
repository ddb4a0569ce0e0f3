-- Note which URL hears of what becomes of a job.   $1 topic  $2 seqs, ascending  $3 a URL each   Answers one row: how many.
-- In the transaction that put these jobs in, or updated them: it has them locked, and nobody waits.
-- Index: primary key (see ack).
WITH own AS MATERIALIZED (
    SELECT x.tid, r.url FROM unnest($2::bigint[], $3::text[]) AS r(seq, url)
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq = r.seq) x
), hooked AS (
    UPDATE holdfast.jobs j SET webhook = o.url FROM own o WHERE j.ctid = o.tid RETURNING 1
)
SELECT count(*) FROM hooked
