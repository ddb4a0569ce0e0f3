-- Under which leases holders have jobs that they name.
--   $1 topic  $2 seqs  $3 lease ids, or NULL for any  $4 nodes, or NULL for any; one each per seq
-- One row for each that is its holder's: `ord`, its place in $2 (from 1), lease_id, and whether it was cancelled. Locks nothing: who acts on it names
-- the lease.   Index: primary key (see ack).
SELECT r.ord, x.lease_id, x.cancelled
FROM unnest($2::bigint[], $3::uuid[], $4::text[]) WITH ORDINALITY AS r(seq, lease, node, ord)
CROSS JOIN LATERAL (
    SELECT j.lease_id, j.cancelled_at IS NOT NULL AS cancelled FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text = 'leased' AND j.visible_at >= now()
      AND (r.lease IS NULL OR j.lease_id = r.lease) AND (r.node IS NULL OR j.node = r.node)
    LIMIT 1
) x
