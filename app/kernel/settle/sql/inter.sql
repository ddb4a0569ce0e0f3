-- Take jobs out whose records stand in a log for dead letters now. They were locked by `spent`, in this transaction.
--   $1 topic  $2 their places in the table  $3 errors, or NULL; one each
--   $4 whether the topic has a webhook (see ack_and_record)
-- Answers one row: how many went.
WITH gone AS (
    DELETE FROM holdfast.jobs j USING unnest($2::tid[], $3::text[]) AS r(tid, error) WHERE j.ctid = r.tid
    RETURNING r.error, j.lease_id, j.node, (j.state::text = 'leased')::integer AS held, j.topic_id, j.seq, j.deliveries,
              j.tenant, j.last_error, octet_length(j.payload) AS bytes,
              CASE WHEN $4::boolean OR j.webhook IS NOT NULL THEN holdfast.about(j) END AS about
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, scheduled, leased, dead_lettered, bytes)
    SELECT min(topic_id), sum(held - 1), -sum(held), count(*), -sum(bytes) FROM gone HAVING count(*) > 0
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail, tenant)
    SELECT $1, topic_id, seq, 'dead_lettered', deliveries, lease_id, node, coalesce(error, last_error), nullif(tenant, '')
    FROM gone
), told AS (
    INSERT INTO holdfast.endings (topic, topic_id, seq, event, deliveries, error, about)
    SELECT $1, topic_id, seq, 'dead_lettered', deliveries, coalesce(error, last_error), about FROM gone
    WHERE about IS NOT NULL
)
SELECT count(*) FROM gone
