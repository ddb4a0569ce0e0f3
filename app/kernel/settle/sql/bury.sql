-- Move jobs to their dead-letter topic that have no deliveries left, or that their holders fail.
--   $1  topic
--   $2  seqs, ascending
--   $3  lease id per seq if its holder fails the job; NULL if the job is not leased any more
--   $4  error per seq, or NULL
--   $5  the topic's max_deliveries, 0 for no limit
--   $6  the dead-letter topic
--   $7  its id
--   $8  oid of its sequence
--   $9  whether the topic has a webhook (see ack_and_record)
-- Answers one row: `done`, the places in $2 (from 1) that were moved; `suspects`, how many of these jobs crashed a
-- second worker just now. A lease that ran out counts as a crash.
-- A dead letter starts with no deliveries, does not expire, and keeps its priority. Its key and group are kept as data.
-- original_* say where it came from. first_* name the job it was at first, whose id the messages dialect shows. Its
-- tenant, max_deliveries and time to live stay in original_* and ttl_ms until it is requeued. failed_in, failed_at and
-- cluster say where, when and with what kind of error it failed.
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
), gone AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.ord, p.error, p.lease_id, p.node, p.held, p.crashed, j.crashes + p.crashed AS crashes, j.topic_id, j.seq, j.priority, j.deliveries, j.created_at, j.tag,
              j.producer, j.last_error, j.metadata, j.payload, j.content_type, j.key, j.grp, j.tenant, j.leased_at, j.max_deliveries,
              coalesce(j.ttl_ms, extract(epoch FROM j.expires_at - j.created_at) * 1000, 0)::bigint AS ttl_ms,
              coalesce(j.first_topic_id, j.topic_id) AS first_topic_id, coalesce(j.first_seq, j.seq) AS first_seq,
              j.webhook,
              CASE WHEN $9::boolean OR j.webhook IS NOT NULL THEN holdfast.about(j) END AS about
), arriving AS MATERIALIZED (
    SELECT g.*, nextval($8::oid::regclass) AS new_seq, clock_timestamp() AS at,
           holdfast.error_cluster(coalesce(error, last_error)) AS cluster
    FROM (SELECT * FROM gone ORDER BY ord) g
), moved AS (
    INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, priority, visible_at, created_at, updated_at, tag,
                               producer, metadata, payload, last_error, original_topic, original_seq,
                               original_deliveries, dlq_moved_at, content_type, first_topic_id, first_seq, key, grp,
                               original_tenant, original_max_deliveries, ttl_ms, cluster, failed_in, failed_at,
                               original_crashes, webhook)
    SELECT $6, $7, new_seq, new_seq, 'ready', priority, at, created_at, at, tag, producer, metadata, payload,
           coalesce(error, last_error), $1, seq, deliveries, at, content_type, first_topic_id, first_seq, key, grp,
           tenant, max_deliveries, ttl_ms, cluster, $1, at, crashes, webhook
    FROM arriving
), lane AS (
    INSERT INTO holdfast.lanes (topic, priority) SELECT DISTINCT $6, priority FROM arriving ORDER BY 2
    ON CONFLICT DO NOTHING
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, leased, dead_lettered, bytes)
    SELECT min(topic_id), 0, sum(held - 1), -sum(held), count(*), -sum(octet_length(payload)) FROM gone
    HAVING count(*) > 0
    UNION ALL
    SELECT $7, count(*), 0, 0, 0, sum(octet_length(payload)) FROM gone HAVING count(*) > 0
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail, began_at, tenant)
    SELECT $1, topic_id, seq, 'dead_lettered'::holdfast.job_event, deliveries, lease_id, node, coalesce(error, last_error),
           CASE WHEN held > crashed THEN leased_at END, nullif(tenant, '') FROM arriving
    UNION ALL
    SELECT $6, $7, new_seq, 'enqueued', 0, NULL, NULL, 'from ' || $1 || ' ' || seq, NULL, NULL FROM arriving
), told AS (
    INSERT INTO holdfast.endings (topic, topic_id, seq, event, deliveries, error, about)
    SELECT $1, topic_id, seq, 'dead_lettered', deliveries, coalesce(error, last_error), about FROM arriving
    WHERE about IS NOT NULL
)
SELECT array(SELECT ord FROM gone ORDER BY ord) AS done,
       (SELECT count(*) FROM gone WHERE crashed = 1 AND crashes = 2) AS suspects
