-- A page of a topic's jobs that failed or expired, newest first: their seqs.
--   $1 topic  $2 seqs below this one  $3 failed or expired  $4 most seqs  $5 leave out so many first
--   $6 most jobs to look at
-- Answers one row: the seqs, descending. Those are looked at that ended last; of expired ones, also those that are not
-- marked yet.   Indexes: jobs_finished, jobs_expiring.
SELECT array(
    SELECT f.seq FROM (
        SELECT * FROM (
            SELECT j.seq, j.state::text AS status FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.state IN ('failed', 'expired')
            ORDER BY j.updated_at DESC LIMIT $6::integer
        ) marked
        UNION ALL
        SELECT * FROM (
            SELECT j.seq, 'expired' FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.expires_at IS NOT NULL AND j.expires_at <= now()
              AND j.state IN ('ready', 'scheduled', 'blocked', 'leased')
              AND (j.state <> 'leased' OR j.visible_at < now())
            ORDER BY j.expires_at DESC LIMIT $6::integer
        ) unmarked
    ) f
    WHERE f.status = $3::text AND f.seq < $2::bigint
    ORDER BY f.seq DESC LIMIT $4::integer OFFSET $5::integer
) AS seqs
