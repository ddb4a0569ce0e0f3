-- Under which leases holders have jobs that they name.
--   $1 topic  $2 seqs  $3 lease ids, or NULL for any  $4 nodes, or NULL for any; one each per seq
-- One row for each that is its holder's: `ord`, its place in $2 (from 1), lease_id, whether it was cancelled, and the
-- deadline in ms since 1970, as show_jobs has it. Locks nothing: the caller names the lease.
-- Index: primary key (see ack).
SELECT r.ord, x.lease_id, x.cancelled, x.until_ms
FROM unnest($2::bigint[], $3::uuid[], $4::text[]) WITH ORDINALITY AS r(seq, lease, node, ord)
CROSS JOIN LATERAL (
    SELECT j.lease_id, j.cancelled_at IS NOT NULL AS cancelled,
           (date_part('epoch', j.visible_at) * 1000)::bigint AS until_ms
    FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text = 'leased' AND j.visible_at >= now()
      AND (r.lease IS NULL OR j.lease_id = r.lease) AND (r.node IS NULL OR j.node = r.node)
    LIMIT 1
) x
