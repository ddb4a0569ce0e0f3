-- Complete jobs whose lease the caller still has: an ack deletes the job.
--   $1  topic
--   $2  seqs, ascending
--   $3  lease id per seq, or NULL for any
--   $4  node per seq, or NULL for any
--   $5  whether the lease may have ended, per seq: the job is completed as long as nobody has claimed it since
-- Answers one row:
--   done        places in $2 (from 1) of the jobs that were completed
--   picked      places of the jobs that were locked
--   deliveries  of the completed jobs, in no order
--   ages        time since their last claim in ms, in the same order; NULL if unknown
--   tenants     their tenants, in the same order
-- A job that is in `picked` but not in `done` was changed by a statement that this one waited for, or has a webhook of
-- its own. The caller runs ack_and_record for it; otherwise the ack of a valid lease would be lost. The caller has lost
-- its lease on every other job.
-- state::text keeps the planner from jobs_due, whose predicate would match. The LATERAL keeps it from choosing a join.
-- Index: primary key.
WITH picked AS MATERIALIZED (
    SELECT r.ord, x.tid
    FROM unnest($2::bigint[], $3::uuid[], $4::text[], $5::boolean[]) WITH ORDINALITY AS r(seq, lease, node, late, ord)
    CROSS JOIN LATERAL (
        SELECT ctid AS tid FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text = 'leased' AND (j.visible_at >= now() OR r.late)
          AND (r.lease IS NULL OR j.lease_id = r.lease) AND (r.node IS NULL OR j.node = r.node)
        FOR UPDATE
    ) x
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid AND j.webhook IS NULL
    RETURNING p.ord, j.topic_id, j.seq, j.deliveries, j.lease_id, j.node, j.leased_at,
              octet_length(j.payload) AS bytes, j.tenant
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, began_at, tenant)
    SELECT $1, topic_id, seq, 'acked', deliveries, lease_id, node, leased_at, nullif(tenant, '') FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, leased, bytes)
    SELECT min(topic_id), -count(*), -sum(bytes) FROM done HAVING count(*) > 0
)
SELECT array(SELECT ord FROM done) AS done, array(SELECT ord FROM picked) AS picked,
       array(SELECT deliveries FROM done) AS deliveries,
       array(SELECT (date_part('epoch', clock_timestamp() - leased_at) * 1000)::bigint FROM done) AS ages,
       array(SELECT tenant FROM done) AS tenants
