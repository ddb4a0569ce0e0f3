-- The seqs of jobs with a key, in no order.   $1 topic  $2 tenant, or NULL for any  $3 key  $4 most of them
-- Answers one row: those of no tenant too, among which dead letters are.     Indexes: jobs_keyed, primary key of lanes.
SELECT array(
    SELECT k.seq FROM (SELECT DISTINCT l.tenant FROM holdfast.lanes l
                       WHERE l.topic = $1 AND ($2::text IS NULL OR l.tenant IN ($2::text, ''))) t
    CROSS JOIN LATERAL (
        SELECT j.seq FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.state = ANY (enum_range(NULL::holdfast.job_state)) AND j.tenant = t.tenant
          AND j.key = $3::text
        LIMIT $4::integer
    ) k LIMIT $4::integer
) AS seqs
