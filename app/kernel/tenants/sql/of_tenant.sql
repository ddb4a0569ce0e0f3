-- Which jobs are a tenant's?   $1 topic  $2 its id  $3 tenant  $4 seqs
-- Answers one row: their seqs. A dead letter is whose it was before. Plain reads: a job's tenant never changes.
-- Index: primary key.
SELECT array(
    SELECT j.seq FROM unnest($4::bigint[]) AS r(seq) CROSS JOIN LATERAL (
        SELECT j.seq, j.tenant, j.original_tenant FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = r.seq LIMIT 1
    ) j
    WHERE coalesce(j.original_tenant, j.tenant) = $3::text
) AS seqs
