-- End jobs that have no deliveries left, or that their holders fail, on a topic without a dead-letter topic. They stay
-- as failed until their retention has passed. cluster and failed_at say with what kind of error and when they failed.
--   $1 to $5 as in bury
--   $6  whether the topic has a webhook (see ack_and_record)
-- Answers one row: `done`, the places in $2 (from 1) that ended; `suspects` as in bury.
-- Leaves cancelled jobs (see cancel_held).   Index: primary key (see ack).
WITH picked AS MATERIALIZED (
    SELECT r.ord, r.error, x.* FROM unnest($2::bigint[], $3::uuid[], $4::text[])
        WITH ORDINALITY AS r(seq, lease, error, ord)
    CROSS JOIN LATERAL (
        SELECT ctid AS tid, j.lease_id, j.node, (j.state::text = 'leased')::integer AS held,
               (j.state::text = 'leased' AND r.lease IS NULL)::integer AS crashed
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text IN ('leased', 'scheduled') AND j.cancelled_at IS NULL
          AND CASE WHEN r.lease IS NULL
                   THEN j.visible_at < now() AND coalesce(j.max_deliveries, $5::integer) > 0
                        AND j.deliveries >= coalesce(j.max_deliveries, $5::integer)
                   ELSE j.state::text = 'leased' AND j.lease_id = r.lease AND j.visible_at >= now() END
        FOR UPDATE
    ) x
), done AS (
    UPDATE holdfast.jobs j
    SET state = 'failed', updated_at = clock_timestamp(), lease_id = NULL, node = NULL,
        crashes = j.crashes + p.crashed, last_error = coalesce(p.error, j.last_error),
        cluster = holdfast.error_cluster(coalesce(p.error, j.last_error)), failed_in = $1, failed_at = clock_timestamp()
    FROM picked p WHERE j.ctid = p.tid
    RETURNING p.ord, p.lease_id, p.node, p.held, p.crashed, j.crashes, j.topic_id, j.seq, j.deliveries, j.last_error,
              j.leased_at, j.tenant,
              octet_length(j.payload) AS bytes,
              CASE WHEN $6::boolean OR j.webhook IS NOT NULL THEN holdfast.about(j) END AS about
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail, began_at, tenant)
    SELECT $1, topic_id, seq, 'failed', deliveries, lease_id, node, last_error,
           CASE WHEN held > crashed THEN leased_at END, nullif(tenant, '') FROM done
), told AS (
    INSERT INTO holdfast.endings (topic, topic_id, seq, event, deliveries, error, about)
    SELECT $1, topic_id, seq, 'failed', deliveries, last_error, about FROM done WHERE about IS NOT NULL
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, scheduled, leased, failed, bytes)
    SELECT min(topic_id), sum(held - 1), -sum(held), count(*), -sum(bytes) FROM done HAVING count(*) > 0
)
SELECT array(SELECT ord FROM done ORDER BY ord) AS done,
       (SELECT count(*) FROM done WHERE crashed = 1 AND crashes = 2) AS suspects
