-- Which leases are still good?   $1 topic  $2 seqs  $3 lease ids; one each per seq
-- Answers one row: the places in $2 (from 1) whose lease is.   Index: primary key (see ack).
-- The LIMIT keeps the planner from making a join of it, which walks the topic for every lease.
SELECT array(
    SELECT r.ord FROM unnest($2::bigint[], $3::uuid[]) WITH ORDINALITY AS r(seq, lease, ord)
    CROSS JOIN LATERAL (
        SELECT 1 FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text = 'leased'
        AND j.lease_id = r.lease AND j.visible_at >= now() LIMIT 1
    ) x
) AS held
