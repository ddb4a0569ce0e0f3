-- Complete jobs as ack does, and write results, archive rows and webhook events for them.
--   $1 to $4 as in ack
--   $5  result per seq, or NULL for none; may be empty
--   $6  how long results are kept, in ms from now; 0 keeps them for ever
--   $7  whether the topic is replayable: completed jobs go into the archive
--   $8  whether the topic has a webhook; a job with its own webhook gets an event in any case (table endings)
--   $9  whether the lease may have ended, per seq, as in ack
-- Answers the same row as ack. The lease event of a job with a result records until when the result is kept. Jobs that
-- are completed together have the same time in the archive and are ordered there by seq.
-- Index: primary key (see ack).
WITH picked AS MATERIALIZED (
    SELECT r.ord, x.tid
    FROM unnest($2::bigint[], $3::uuid[], $4::text[], $9::boolean[]) WITH ORDINALITY AS r(seq, lease, node, late, ord)
    CROSS JOIN LATERAL (
        SELECT ctid AS tid FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text = 'leased' AND (j.visible_at >= now() OR r.late)
          AND (r.lease IS NULL OR j.lease_id = r.lease) AND (r.node IS NULL OR j.node = r.node)
        FOR UPDATE
    ) x
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.ord, j.topic_id, j.seq, j.deliveries, j.lease_id, j.node, j.leased_at,
              octet_length(j.payload) AS bytes, j.created_at, j.original_seq, j.max_deliveries, j.priority, j.tenant,
              j.tag, j.producer, j.last_error, j.original_topic, j.metadata, j.payload, j.key, j.content_type,
              j.first_topic_id, j.first_seq, coalesce(j.grp, j.left_grp) AS grp,
              CASE WHEN $8::boolean OR j.webhook IS NOT NULL THEN holdfast.about(j) END AS about
), clock AS MATERIALIZED (
    SELECT l.at, CASE WHEN $6::bigint > 0 THEN l.at + $6::bigint * interval '1 ms' END AS expires_at
    FROM (SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM picked) locked) l
), result AS (
    INSERT INTO holdfast.results (completed_at, expires_at, topic, topic_id, seq, first_topic_id, first_seq, lease_id,
                                  deliveries, node, result)
    SELECT c.at, c.expires_at, $1, d.topic_id, d.seq, d.first_topic_id, d.first_seq, d.lease_id, d.deliveries, d.node,
           ($5::json[])[d.ord::integer]
    FROM done d CROSS JOIN clock c WHERE ($5::json[])[d.ord::integer] IS NOT NULL
), kept AS (
    INSERT INTO holdfast.archive (finished_at, topic, topic_id, seq, outcome, created_at, original_seq, deliveries,
                                  max_deliveries, priority, tenant, node, tag, producer, last_error, original_topic,
                                  metadata, payload, key, content_type, first_topic_id, first_seq, grp)
    SELECT c.at, $1, d.topic_id, d.seq, 'completed', d.created_at, d.original_seq, d.deliveries, d.max_deliveries,
           d.priority, d.tenant, d.node, d.tag, d.producer, d.last_error, d.original_topic, d.metadata, d.payload,
           d.key, d.content_type, d.first_topic_id, d.first_seq, d.grp
    FROM done d CROSS JOIN clock c WHERE $7::boolean
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, began_at, tenant, until)
    SELECT $1, d.topic_id, d.seq, 'acked', d.deliveries, d.lease_id, d.node, d.leased_at, nullif(d.tenant, ''),
           CASE WHEN ($5::json[])[d.ord::integer] IS NOT NULL THEN c.expires_at END
    FROM done d CROSS JOIN clock c
), told AS (
    INSERT INTO holdfast.endings (topic, topic_id, seq, event, deliveries, about)
    SELECT $1, topic_id, seq, 'completed', deliveries, about FROM done WHERE about IS NOT NULL
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, leased, bytes)
    SELECT min(topic_id), -count(*), -sum(bytes) FROM done HAVING count(*) > 0
)
SELECT array(SELECT ord FROM done) AS done, array(SELECT ord FROM picked) AS picked,
       array(SELECT deliveries FROM done) AS deliveries,
       array(SELECT (date_part('epoch', clock_timestamp() - leased_at) * 1000)::bigint FROM done) AS ages,
       array(SELECT tenant FROM done) AS tenants
