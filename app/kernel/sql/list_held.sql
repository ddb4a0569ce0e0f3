-- A page of a topic's jobs under a good lease, newest first: their seqs.
--   $1 topic  $2 seqs below this one  $3 most seqs  $4 leave out so many first  $5 most jobs of a lane to look at
-- Answers one row: the seqs, descending. Those are looked at whose leases end first.   Index: jobs_due.
SELECT array(
    SELECT h.seq FROM holdfast.lanes l CROSS JOIN LATERAL (
        SELECT j.seq, j.state::text AS state FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
          AND j.state IN ('leased', 'scheduled') AND j.visible_at >= now()
        ORDER BY j.visible_at LIMIT $5::integer
    ) h
    WHERE l.topic = $1 AND h.state = 'leased' AND h.seq < $2::bigint
    ORDER BY h.seq DESC LIMIT $3::integer OFFSET $4::integer
) AS seqs
