-- End jobs that were cancelled under their holders, who give them up.
--   $1 topic  $2 seqs, ascending  $3 leases  $4 errors, or NULL; one each per seq
-- Answers one row: the places in $2 (from 1) that ended.   Index: primary key (see ack).
WITH picked AS MATERIALIZED (
    SELECT r.ord, r.error, x.* FROM unnest($2::bigint[], $3::uuid[], $4::text[])
        WITH ORDINALITY AS r(seq, lease, error, ord)
    CROSS JOIN LATERAL (
        SELECT ctid AS tid FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text = 'leased' AND j.lease_id = r.lease
          AND j.visible_at >= now() AND j.cancelled_at IS NOT NULL
        FOR UPDATE
    ) x
), gone AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.ord, p.error, j.topic_id, j.seq, j.deliveries, j.lease_id, j.node, j.leased_at, j.tenant,
              octet_length(j.payload) AS bytes
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail, began_at, tenant)
    SELECT $1, topic_id, seq, 'cancelled', deliveries, lease_id, node, error, leased_at, nullif(tenant, '') FROM gone
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, leased, bytes)
    SELECT min(topic_id), -count(*), -sum(bytes) FROM gone HAVING count(*) > 0
)
SELECT array(SELECT ord FROM gone) AS done
