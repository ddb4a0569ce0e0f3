-- Which jobs were completed with a result under these leases, as far as that is kept; also those that are named as the
-- jobs that dead letters were at first.   $1 topic  $2 topic id  $3 seqs  $4 lease ids; one each per seq
-- A row for each: its place in $3 (from 1).   Indexes: results_job and results_first, in each day that there is.
SELECT r.ord FROM unnest($3::bigint[], $4::uuid[]) WITH ORDINALITY AS r(seq, lease, ord)
CROSS JOIN LATERAL (
    SELECT 1 FROM (
        SELECT x.lease_id, x.expires_at FROM holdfast.results x
        WHERE x.topic = $1 AND x.topic_id = $2::integer AND x.seq = r.seq
        UNION ALL
        SELECT x.lease_id, x.expires_at FROM holdfast.results x
        WHERE x.first_topic_id = $2::integer AND x.first_seq = r.seq
    ) f WHERE f.lease_id = r.lease AND (f.expires_at IS NULL OR f.expires_at > now()) LIMIT 1
) kept
