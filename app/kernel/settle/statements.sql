-- name: cancel_held
-- End jobs that were cancelled while they were leased, and that their holders return or fail.
--   $1  topic
--   $2  seqs, ascending
--   $3  lease id per seq
--   $4  error per seq, or NULL
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

-- name: completed
-- Which jobs were completed with a result under these leases, as far as results are kept? Also finds the first jobs of
-- dead letters.
--   $1  topic
--   $2  topic id
--   $3  seqs
--   $4  lease id per seq
-- One row per job: its place in $3 (from 1).   Indexes: results_job and results_first, for each day.
SELECT r.ord FROM unnest($3::bigint[], $4::uuid[]) WITH ORDINALITY AS r(seq, lease, ord)
CROSS JOIN LATERAL (
    SELECT 1 FROM (
        SELECT x.lease_id, x.expires_at FROM holdfast.results x
        WHERE x.topic = $1 AND x.topic_id = $2::integer AND x.seq = r.seq
        UNION ALL
        SELECT x.lease_id, x.expires_at FROM holdfast.results x
        WHERE x.first_topic_id = $2::integer AND x.first_seq = r.seq
    ) f WHERE f.lease_id = r.lease AND (f.expires_at IS NULL OR f.expires_at > now()) LIMIT 1
) kept

-- name: delete_expired
-- Read ended jobs in the order in which they ended, and delete those marked as expired, whatever their age.
--   $1  topic
--   $2  jobs that ended after this time
--   $3  or at this time, after this seq
--   $4  most jobs to read, including failed ones
-- Answers one row: deleted; the time and seq of the last job that was read, NULL at the end.   Index: jobs_finished.
WITH picked AS MATERIALIZED (
    SELECT ctid AS tid, j.state::text AS was, j.updated_at, j.seq FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.state IN ('failed', 'expired')
      AND j.updated_at >= $2::timestamptz AND (j.updated_at, j.seq) > ($2::timestamptz, $3::bigint)
    ORDER BY j.updated_at, j.seq LIMIT $4::integer FOR UPDATE SKIP LOCKED
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid AND p.was = 'expired'
    RETURNING j.topic_id, j.seq, j.deliveries
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, detail)
    SELECT $1, topic_id, seq, 'deleted', deliveries, 'was expired' FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, expired) SELECT min(topic_id), -count(*) FROM done HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM done) AS deleted, (SELECT max(updated_at) FROM picked) AS last_at,
       (SELECT p.seq FROM picked p ORDER BY p.updated_at DESC, p.seq DESC LIMIT 1) AS last_seq

-- name: delete_jobs
-- Delete a batch of a queue's waiting jobs for good. A job with a valid lease is marked as in cancel_jobs, once, and
-- leaves its group. A job whose lease has ended counts as waiting.
--   $1  topic
--   $2  after this seq
--   $3  up to this seq
--   $4  only with this tag, or NULL
--   $5  only with tags that start with this, or NULL
--   $6  most jobs to read
-- Answers one row: deleted; ready, how many of these were ready; marked; picked, how many were locked; last_seq, the
-- last seq that was read, NULL at the end. If picked is more than deleted and marked together, another statement
-- changed a job meanwhile, and the caller runs the statement again from the same place.   Index: primary key.
WITH looked AS MATERIALIZED (
    SELECT j.seq FROM holdfast.jobs j WHERE j.topic = $1 AND j.seq > $2::bigint AND j.seq <= $3::bigint
    ORDER BY j.seq LIMIT $6::integer
), picked AS MATERIALIZED (
    SELECT x.* FROM looked l CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.state::text AS was, j.state::text = 'leased' AND j.visible_at >= now() AS held,
               CASE WHEN j.original_topic IS NULL THEN j.grp END AS grp
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = l.seq
          AND (j.state::text IN ('ready', 'scheduled', 'blocked')
               OR (j.state::text = 'leased' AND (j.visible_at < now() OR j.cancelled_at IS NULL)))
          AND ($4::text IS NULL OR j.tag = $4::text) AND ($5::text IS NULL OR starts_with(j.tag, $5::text))
        FOR UPDATE
    ) x
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid AND NOT p.held
    RETURNING p.was, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
), marked AS (
    UPDATE holdfast.jobs j
    SET cancelled_at = clock_timestamp(), expires_at = least(j.expires_at, now()),
        grp = CASE WHEN p.grp IS NULL THEN j.grp END, left_grp = p.grp
    FROM picked p WHERE j.ctid = p.tid AND p.held
    RETURNING p.grp, j.tenant, j.topic_id, j.seq, j.deliveries, j.lease_id, j.node
), freed AS (
    INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) SELECT topic_id, tenant, grp FROM marked WHERE grp IS NOT NULL
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
    SELECT $1, topic_id, seq, 'deleted'::holdfast.job_event, deliveries, NULL::uuid, NULL::text, 'was ' || was FROM done
    UNION ALL
    SELECT $1, topic_id, seq, 'updated', deliveries, lease_id, node, 'to be cancelled' FROM marked
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'), -sum(bytes)
    FROM done HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM done) AS deleted, (SELECT count(*) FROM done d WHERE d.was = 'ready') AS ready,
       (SELECT count(*) FROM marked) AS marked, (SELECT count(*) FROM picked) AS picked, (SELECT max(l.seq) FROM looked l) AS last_seq

-- name: delete_key
-- Delete the jobs with a key for good, in any state, also leased ones.
--   $1  topic
--   $2  tenant
--   $3  key
--   $4  most jobs to read
-- Answers one row: deleted; ready and leased, how many of these were; looked, how many were found. If looked is more
-- than deleted, another statement changed a job meanwhile, and the caller runs the statement again.
-- Locks the waiting job after the others, as returns and enqueues do: its seq may be lower than a leased one's.
-- Indexes: jobs_keyed, primary key.
WITH looked AS MATERIALIZED (
    SELECT j.seq, j.state::text IN ('ready', 'scheduled', 'blocked') AS waits FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.key = $3 AND j.tenant = $2
      AND j.state = ANY (enum_range(NULL::holdfast.job_state))
    LIMIT $4::integer
), picked AS MATERIALIZED (
    SELECT x.* FROM (SELECT l.seq FROM looked l ORDER BY l.waits, l.seq) l CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.state::text AS was, j.lease_id, j.node FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = l.seq AND j.key = $3 AND j.tenant = $2
        FOR UPDATE
    ) x
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.was, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
    SELECT $1, topic_id, seq, 'deleted', deliveries, lease_id, node, 'was ' || was FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, failed, expired, bytes)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'),
           -count(*) FILTER (WHERE was = 'failed'), -count(*) FILTER (WHERE was = 'expired'),
           -coalesce(sum(bytes) FILTER (WHERE was NOT IN ('failed', 'expired')), 0)
    FROM done HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM done) AS deleted, (SELECT count(*) FROM done d WHERE d.was = 'ready') AS ready,
       (SELECT count(*) FROM done d WHERE d.was = 'leased') AS leased, (SELECT count(*) FROM looked) AS looked

-- name: exhausted
-- Jobs whose last lease ran out: they were not settled, and have no deliveries left.
--   $1  topic
--   Lanes, each once:
--   $2  tenants
--   $3  priorities
--   $4  the topic's max_deliveries, 0 for no limit
--   $5  most jobs
-- One row per job: its seq. Takes no locks; bury and fail check again.   Index: jobs_due.
SELECT x.seq FROM unnest($2::text[], $3::smallint[]) AS l(tenant, priority) CROSS JOIN LATERAL (
    SELECT j.seq FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority AND j.state IN ('leased', 'scheduled')
      AND j.visible_at < now()
      AND coalesce(j.max_deliveries, $4::integer) > 0 AND j.deliveries >= coalesce(j.max_deliveries, $4::integer)
    ORDER BY j.visible_at LIMIT $5::integer
) x LIMIT $5::integer

-- name: find_result
-- A job's result, also if it was completed as a dead letter.
--   $1  topic
--   $2  topic id
--   $3  seq
-- At most one row: the topic in which it was completed; when, and until when the result is kept (NULL: for ever), in ms
-- since 1970; the result; whether it can still be shown.   Indexes: results_job and results_first, for each day.
SELECT f.topic, (date_part('epoch', f.completed_at) * 1000)::bigint AS completed_ms,
       (date_part('epoch', f.expires_at) * 1000)::bigint AS expires_ms, f.deliveries, f.result::text AS result,
       f.expires_at IS NULL OR f.expires_at > now() AS kept
FROM (
    (SELECT r.topic, r.completed_at, r.expires_at, r.deliveries, r.result FROM holdfast.results r
     WHERE r.topic = $1 AND r.topic_id = $2::integer AND r.seq = $3::bigint
     ORDER BY r.completed_at DESC LIMIT 1)
    UNION ALL
    (SELECT r.topic, r.completed_at, r.expires_at, r.deliveries, r.result FROM holdfast.results r
     WHERE r.first_topic_id = $2::integer AND r.first_seq = $3::bigint
     ORDER BY r.completed_at DESC LIMIT 1)
) f ORDER BY f.completed_at DESC LIMIT 1

-- name: inter
-- Delete jobs whose records are in a dead-letter log now. `spent` has locked them in this transaction.
--   $1  topic
--   $2  their ctids
--   $3  error per job, or NULL
--   $4  whether the topic has a webhook (see ack_and_record)
-- Answers one row: how many were deleted.
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

-- name: spent
-- Lock jobs that have no deliveries left, or that their holders fail, and read the fields of their records. Must run in
-- a transaction, which keeps the locks.
--   $1  topic
--   $2  seqs, ascending
--   $3  lease id per seq if its holder fails the job; NULL if the job is not leased any more
--   $4  the topic's max_deliveries, 0 for no limit
--   $5  most bytes of payloads and metadata; the first job is returned whatever its size
-- One row per job, in the order of $2: `ord`, its place there (from 1); `tid`, its ctid; tag, producer, payload and its
-- content type; metadata, with where the job came from; `suspect`, whether bury would count it in `suspects`.
-- Leaves cancelled jobs (see cancel_held).   Index: primary key (see ack).
WITH picked AS MATERIALIZED (
    SELECT r.ord, x.* FROM unnest($2::bigint[], $3::uuid[]) WITH ORDINALITY AS r(seq, lease, ord)
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.seq, j.deliveries, j.tag, j.producer, j.payload, j.content_type,
               (coalesce(j.metadata::jsonb, '{}') || jsonb_build_object(
                   '$dead_letter_from', j.topic, '$dead_letter_deliveries', j.deliveries::text,
                   '$dead_letter_src_seq', j.seq::text)
                || CASE WHEN n.crashes > 0 THEN jsonb_build_object('$dead_letter_crashes', n.crashes::text)
                        ELSE '{}' END)::json
                   AS metadata,
               n.crashed AND n.crashes = 2 AS suspect
        FROM holdfast.jobs j
        CROSS JOIN LATERAL (SELECT j.state::text = 'leased' AND r.lease IS NULL AS crashed) c
        CROSS JOIN LATERAL (SELECT c.crashed, j.crashes + c.crashed::integer AS crashes) n
        WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text IN ('leased', 'scheduled') AND j.cancelled_at IS NULL
          AND CASE WHEN r.lease IS NULL
                   THEN j.visible_at < now() AND coalesce(j.max_deliveries, $4::integer) > 0
                        AND j.deliveries >= coalesce(j.max_deliveries, $4::integer)
                   ELSE j.state::text = 'leased' AND j.lease_id = r.lease AND j.visible_at >= now() END
        FOR UPDATE OF j
    ) x
), weighed AS (
    SELECT p.*, sum(octet_length(p.payload) + octet_length(p.metadata::text)) OVER (ORDER BY p.ord) AS weight
    FROM picked p
)
SELECT w.ord, w.tid, w.tag, w.producer, w.metadata, w.payload, w.content_type, w.suspect FROM weighed w
WHERE w.weight <= $5::bigint OR w.ord = (SELECT min(ord) FROM picked)
ORDER BY w.ord

-- name: supersede
-- End jobs whose lease ran out while a newer job with their key waits, or the waiting job if it is older.
--   $1  topic
--   After this lease:
--   $2  tenant
--   $3  key
--   $4  seq
--   $5  most leases to read
--   $6  whether deliveries are limited here
--   $7  the topic's max_deliveries, 0 for no limit. A job with no deliveries left is removed elsewhere
-- Answers one row: how many ended, and the last lease that was read (NULL: there are no more).
-- Skips locked rows; the next run finds them.   Indexes: jobs_keyed, jobs_pending_key.
WITH looked AS MATERIALIZED (
    SELECT j.tenant, j.key, j.seq FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.state = 'leased' AND j.key IS NOT NULL AND (j.tenant, j.key, j.seq) > ($2, $3, $4::bigint)
    ORDER BY j.tenant, j.key, j.seq LIMIT $5::integer
), picked AS MATERIALIZED (
    SELECT CASE WHEN w.updated_at >= l.updated_at THEN l.tid ELSE w.tid END AS tid,
           CASE WHEN w.updated_at >= l.updated_at THEN w.seq ELSE l.seq END AS by,
           CASE WHEN w.updated_at >= l.updated_at THEN 'leased' ELSE w.was END AS was,
           CASE WHEN w.updated_at >= l.updated_at THEN l.lease_id END AS lease_id,
           CASE WHEN w.updated_at >= l.updated_at THEN l.node END AS node
    FROM looked k
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.seq, j.tenant, j.key, j.updated_at, j.lease_id, j.node FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = k.seq AND j.state::text = 'leased' AND j.visible_at < now()
          AND j.original_topic IS NULL AND (j.expires_at IS NULL OR j.expires_at > now())
          AND NOT ($6::boolean AND coalesce(j.max_deliveries, $7::integer) > 0
                   AND j.deliveries >= coalesce(j.max_deliveries, $7::integer))
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) l
    CROSS JOIN LATERAL (
        SELECT j.ctid AS tid, j.seq, j.updated_at, j.state::text AS was FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = l.tenant AND j.key = l.key AND j.original_topic IS NULL
          AND j.state IN ('ready', 'scheduled', 'blocked') AND (j.expires_at IS NULL OR j.expires_at > now())
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) w
), done AS (
    DELETE FROM holdfast.jobs j USING (SELECT DISTINCT ON (tid) * FROM picked ORDER BY tid) p WHERE j.ctid = p.tid
    RETURNING p.by, p.was, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail)
    SELECT $1, topic_id, seq, 'superseded', deliveries, lease_id, node, 'by ' || by FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'), -sum(bytes)
    FROM done HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM done) AS ended, l.tenant, l.key, l.seq
FROM (SELECT 1) one LEFT JOIN (SELECT * FROM looked ORDER BY tenant DESC, key DESC, seq DESC LIMIT 1) l ON true

-- name: sweep_finished
-- Delete failed and expired jobs whose retention has passed.
--   $1  topic
--   $2  how long they are kept, an interval
--   $3  most jobs to delete
-- Answers one row: how many were deleted.   Index: jobs_finished.
WITH picked AS MATERIALIZED (
    SELECT ctid AS tid, j.state::text AS was FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.state IN ('failed', 'expired') AND j.updated_at < now() - $2::interval
    ORDER BY j.updated_at LIMIT $3::integer FOR UPDATE SKIP LOCKED
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid RETURNING p.was, j.topic_id, j.seq, j.deliveries
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, detail)
    SELECT $1, topic_id, seq, 'deleted', deliveries, 'was ' || was FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, failed, expired)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'failed'), -count(*) FILTER (WHERE was = 'expired')
    FROM done HAVING count(*) > 0
)
SELECT count(*) FROM done

-- name: unended
-- Which jobs still wait or are leased?
--   $1  topic per job
--   $2  its id
--   $3  seq per job
-- One row per such job: its place in $1 (from 1). Jobs that have expired by the database's clock are not among them.
-- Index: primary key.
SELECT l.ord FROM unnest($1::text[], $2::integer[], $3::bigint[]) WITH ORDINALITY AS l(topic, topic_id, seq, ord)
CROSS JOIN LATERAL (
    SELECT 1 FROM holdfast.jobs j
    WHERE j.topic = l.topic AND j.seq = l.seq AND j.topic_id = l.topic_id
      AND j.state::text IN ('ready', 'scheduled', 'blocked', 'leased')
      AND (j.expires_at IS NULL OR j.expires_at > now() OR (j.state::text = 'leased' AND j.visible_at >= now()))
) j
