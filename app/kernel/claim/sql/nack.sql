-- Return jobs that their holders still have, to be claimed again now or after a delay.
--   $1 topic  $2 seqs, ascending  $3 lease ids, or NULL for any  $4 nodes, or NULL for any  $5 delays in ms,
--   or NULL for what the backoff says, and none where the delivery is given back  $6 errors, or NULL
--   $7 a delivery is given back for as long as the job was given back fewer than so many (0: it counts), or NULL: always,
--   and that is not counted; one each per seq
--   $8 whether deliveries run out here  $9 the topic's max_deliveries, 0 for no end  $10 its backoff, NULL for none
-- Answers one row: `done` and `picked` as in ack; of those that are done, `refunded`, the places whose delivery was given
-- back and counted, and in no order their `delays` in ms; `spent`, places whose job has no delivery left, with the
-- `leases` under which they are still held, and whether they were `cancelled`: the caller takes those out with bury or
-- fail, or cancel_held; and `keyed`, places whose job
-- has a key, and is returned with nack_keyed: its place may be taken.
-- A dead letter's cluster is that of the last error that was handed in.
-- A returned job enters the due lane, never the ready lane: its position lies below what claims have passed.
-- Index: primary key (see ack).
WITH picked AS MATERIALIZED (
    SELECT r.ord, r.error, x.tid, x.lease_id, x.node, x.given_back, x.given_back AND r.refund IS NOT NULL AS refunded,
           (x.spent AND NOT x.given_back) OR x.cancelled AS spent, x.keyed, x.cancelled,
           coalesce(r.delay_ms, CASE WHEN x.given_back THEN 0 ELSE holdfast.backoff_ms($10::json, x.deliveries) END, 0)
               AS delay_ms
    FROM unnest($2::bigint[], $3::uuid[], $4::text[], $5::bigint[], $6::text[], $7::smallint[])
        WITH ORDINALITY AS r(seq, lease, node, delay_ms, error, refund, ord)
    CROSS JOIN LATERAL (
        SELECT ctid AS tid, j.lease_id, j.node, j.deliveries, r.refund IS NULL OR j.refunds < r.refund AS given_back,
               j.cancelled_at IS NOT NULL AS cancelled,
               j.key IS NOT NULL AND j.original_topic IS NULL AS keyed,
               $8::boolean AND coalesce(j.max_deliveries, $9::integer) > 0
               AND j.deliveries >= coalesce(j.max_deliveries, $9::integer) AS spent
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text = 'leased' AND j.visible_at >= now()
          AND (r.lease IS NULL OR j.lease_id = r.lease) AND (r.node IS NULL OR j.node = r.node)
        FOR UPDATE
    ) x
), done AS (
    UPDATE holdfast.jobs j
    SET state = 'scheduled', visible_at = clock_timestamp() + p.delay_ms * interval '1 ms',
        updated_at = clock_timestamp(), lease_id = NULL, node = NULL,
        deliveries = j.deliveries - p.given_back::integer, refunds = j.refunds + p.refunded::integer,
        last_error = coalesce(p.error, j.last_error),
        cluster = CASE WHEN j.cluster IS NULL OR p.error IS NULL THEN j.cluster ELSE holdfast.error_cluster(p.error) END
    FROM picked p WHERE j.ctid = p.tid AND NOT p.spent AND NOT p.keyed
    RETURNING p.ord, p.refunded, p.delay_ms, j.topic_id, j.seq, j.deliveries, p.lease_id, p.node, j.visible_at, p.error,
              j.leased_at, j.tenant
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, until, detail, began_at, tenant)
    SELECT $1, topic_id, seq, 'released', deliveries, lease_id, node, visible_at, error, leased_at, nullif(tenant, '')
    FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, scheduled, leased)
    SELECT min(topic_id), count(*), -count(*) FROM done HAVING count(*) > 0
)
SELECT array(SELECT ord FROM done) AS done, array(SELECT ord FROM picked WHERE NOT spent AND NOT keyed) AS picked,
       array(SELECT ord FROM done WHERE refunded) AS refunded, array(SELECT delay_ms FROM done) AS delays,
       array(SELECT ord FROM picked WHERE spent ORDER BY ord) AS spent,
       array(SELECT lease_id FROM picked WHERE spent ORDER BY ord) AS leases,
       array(SELECT cancelled FROM picked WHERE spent ORDER BY ord) AS cancelled,
       array(SELECT ord FROM picked WHERE keyed AND NOT spent ORDER BY ord) AS keyed
