-- Return jobs whose lease the caller still has. They can be claimed again now or after a delay.
--   $1 to $4 as in ack
--   $5   delay per seq in ms, or NULL for the backoff's delay (no delay if the delivery is given back)
--   $6   error per seq, or NULL
--   $7   limit per seq on given-back deliveries: the delivery does not count while fewer were given back (0: it always
--        counts). NULL: this delivery does not count, and is not counted as given back
--   $8   whether deliveries are limited here
--   $9   the topic's max_deliveries, 0 for no limit
--   $10  its backoff, or NULL for none
-- Answers one row:
--   done       as in ack
--   picked     as in ack
--   refunded   places of the jobs in `done` whose delivery was given back and counted
--   delays     delays of the jobs in `done` in ms, in no order
--   spent      places of jobs with no deliveries left. The caller removes them with bury, fail or cancel_held
--   leases     their lease ids: they are still leased
--   cancelled  whether they were cancelled
--   keyed      places of jobs with a key, which another job may have by now. The caller returns them with nack_keyed
-- The last error of a dead letter decides its cluster.
-- A returned job goes to the due part of its lane, never to the ready part: claims have already passed its position.
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
