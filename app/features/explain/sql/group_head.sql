-- What is out of a group, and how many of it wait before a job.   $1 topic  $2 tenant  $3 group  $4 seq  $5 most to count
-- Answers one row: the seq of the job that is out, its state by the database's clock (as in explain_job; NULL: none is, its
-- successor is being let through), who holds it and until when, in ms since 1970, and its delivery; before, blocked ones with lower seqs.
-- Indexes: jobs_group_out, jobs_blocked.
SELECT o.seq, o.state, o.node, o.until_ms, o.deliveries,
       (SELECT count(*) FROM (
            SELECT 1 FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.tenant = $2 AND j.grp = $3 AND j.state = 'blocked' AND j.seq < $4::bigint
            ORDER BY j.seq LIMIT $5::integer
        ) b) AS before
FROM (SELECT 1) one
LEFT JOIN LATERAL (
    SELECT j.seq, j.node, j.deliveries, (date_part('epoch', j.visible_at) * 1000)::bigint AS until_ms,
           holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state
    FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.tenant = $2 AND j.grp = $3 AND j.grp IS NOT NULL AND j.original_topic IS NULL
      AND j.state IN ('ready', 'scheduled', 'leased')
    LIMIT 1
) o ON true
