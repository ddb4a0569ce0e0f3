-- name: adopt_operations
-- Take over operations whose process is dead. One row for each: id.   Index: operations_under_way.
--   $1  the new owner
--   $2  interval without a heartbeat after which a process counts as dead
--   $3  operations to take at most
WITH left_behind AS MATERIALIZED (
    SELECT o.id FROM holdfast.operations o
    WHERE o.ended_at IS NULL AND o.heartbeat_at < now() - $2::interval
    ORDER BY o.heartbeat_at LIMIT $3::integer FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.operations o SET owner = $1, heartbeat_at = clock_timestamp() FROM left_behind l WHERE o.id = l.id
RETURNING o.id

-- name: advance_operation
-- Store what a batch has done, in the batch's transaction. One row: true.   Index: primary key.
--   $1   operation's id
--   $2   state
--   $3   jobs requeued by the batch
--   $4   jobs skipped by the batch
--   $5   failed again, total
--   $6   stage
--   $7   time of the place reached
--   $8   seq of the place reached
--   $9   the canary's first jobs, as JSON
--   $10  how long to wait for them, in ms (NULL: unchanged)
--   $11  waiting jobs removed by the batch
--   $12  leased jobs marked by the batch
UPDATE holdfast.operations
SET state = $2, requeued = requeued + $3::bigint, skipped = skipped + $4::bigint, failed_again = $5, stage = $6,
    after_time = $7, after_seq = $8, canary_jobs = $9,
    gone = gone + $11::bigint, marked = marked + $12::bigint,
    canary_until = coalesce(clock_timestamp() + $10::bigint * interval '1 ms', canary_until)
WHERE id = $1 AND ended_at IS NULL RETURNING true

-- name: begin_operation
-- Store a new operation.
--   $1   operation's id
--   $2   owner, the process that runs it
--   $3   topic's name
--   $4   topic's id
--   $5   dead-letter topic's name, or NULL
--   $6   dead-letter topic's id, or NULL
--   $7   take only jobs that failed (for a cancel: were enqueued) by this time
--   $8   seqs, or NULL to go by filter
--   $9   prefixes of the topics that it may requeue into (empty: all)
--   $10  a requeue's filter as JSON, NULL for a cancel
--   $11  jobs a second, 0 for no limit
--   $12  canary as JSON, or NULL
--   $13  how many jobs match
--   $14  whether that is exact
--   $15  caller's id
--   $16  caller's name
--   $17  caller's address
--   $18  a cancel's filter as JSON, NULL for a requeue
INSERT INTO holdfast.operations (id, owner, topic, topic_id, dead_topic, dead_id, until_time, seqs, starts, filter, rate,
                                 canary, matched, matched_exact, actor, actor_name, address, cancels, state, started_at,
                                 heartbeat_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::json, $13, $14, $15, $16, $17, $18,
        CASE WHEN $12::json IS NULL THEN 'running' ELSE 'canary' END, clock_timestamp(), clock_timestamp())

-- name: canary
-- What became of the jobs of a canary.   $1 JSON: a list of {topic, topic_id, seq, id_topic, id_seq}
-- One row: failed, how many have failed again or are dead letters; gone, how many ended otherwise, usually completed.
-- The others wait or run.   Indexes: primary key, jobs_first, which spans all topics.
SELECT count(*) FILTER (WHERE here.out OR (here.out IS NULL AND dead.seq IS NOT NULL)) AS failed,
       count(*) FILTER (WHERE here.out IS NULL AND dead.seq IS NULL) AS gone
FROM json_to_recordset($1::json) AS c(topic text, topic_id integer, seq bigint, id_topic integer, id_seq bigint)
LEFT JOIN LATERAL (
    SELECT j.state::text IN ('failed', 'expired') AS out FROM holdfast.jobs j
    WHERE j.topic = c.topic AND j.seq = c.seq AND j.topic_id = c.topic_id
) here ON true
LEFT JOIN LATERAL (
    SELECT j.seq FROM holdfast.jobs j
    WHERE j.first_topic_id = c.id_topic AND j.first_seq = c.id_seq AND j.dlq_moved_at IS NOT NULL LIMIT 1
) dead ON true

-- name: cancel_jobs
-- Cancel jobs. A waiting job, or one whose lease has ended, is deleted. A leased job is marked: its lease continues, and
-- the job ends with the lease unless it is acked. A marked job leaves its group with the note that promote looks for
-- (docs/adr/0033), so the group continues at once. left_grp keeps the group's name.
--   $1  topic's name
--   $2  topic's id
--   $3  seqs, ascending
-- One row. gone, marked and picked are indexes in $3, from 1:
--   gone    jobs deleted
--   marked  leased jobs marked
--   ready   how many of the deleted jobs were in the fresh part of their lane
--   picked  jobs locked; the caller repeats the statement for those in neither gone nor marked, as in ack
-- Failed, expired and missing jobs are skipped.
-- The mark sets expires_at to now(), so claims, keys and sweeps handle the job as an expired one once its lease has ended
-- (see expire). A lease that is valid now ends later, so expires_at is in the past by then.   Index: primary key (see ack).
WITH picked AS MATERIALIZED (
    SELECT r.ord, x.* FROM unnest($3::bigint[]) WITH ORDINALITY AS r(seq, ord)
    CROSS JOIN LATERAL (
        SELECT ctid AS tid, j.state::text AS was, j.state::text = 'leased' AND j.visible_at >= now() AS held,
               j.lease_id, j.node, CASE WHEN j.original_topic IS NULL THEN j.grp END AS grp
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = r.seq
          AND CASE j.state::text WHEN 'failed' THEN false WHEN 'expired' THEN false
                                 WHEN 'leased' THEN j.visible_at >= now() OR j.cancelled_at IS NOT NULL
                                                    OR j.expires_at IS NULL OR j.expires_at > now()
                                 ELSE j.expires_at IS NULL OR j.expires_at > now() END
        FOR UPDATE
    ) x
), gone AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid AND NOT p.held
    RETURNING p.ord, p.was, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, j.tenant, octet_length(j.payload) AS bytes
), marked AS (
    UPDATE holdfast.jobs j
    SET cancelled_at = coalesce(j.cancelled_at, clock_timestamp()), expires_at = least(j.expires_at, now()),
        grp = CASE WHEN p.grp IS NULL THEN j.grp END, left_grp = coalesce(p.grp, j.left_grp)
    FROM picked p WHERE j.ctid = p.tid AND p.held
    RETURNING p.ord, p.grp, j.tenant, j.topic_id, j.seq, j.deliveries, j.lease_id, j.node
), freed AS (
    INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) SELECT topic_id, tenant, grp FROM marked WHERE grp IS NOT NULL
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, detail, tenant)
    SELECT $1, topic_id, seq, 'cancelled'::holdfast.job_event, deliveries, lease_id, node, NULL, nullif(tenant, '') FROM gone
    UNION ALL
    SELECT $1, topic_id, seq, 'updated', deliveries, lease_id, node, 'to be cancelled', NULL FROM marked
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'), -sum(bytes)
    FROM gone HAVING count(*) > 0
)
SELECT array(SELECT ord FROM gone) AS gone, array(SELECT ord FROM marked) AS marked,
       (SELECT count(*) FROM gone WHERE was = 'ready') AS ready, array(SELECT ord FROM picked) AS picked

-- name: cancel_operation
-- Ask an operation to end after its current batch.   $1 id
-- One row: true. No row: it has ended, or was asked before.   Index: primary key.
UPDATE holdfast.operations SET cancelled = true WHERE id = $1 AND ended_at IS NULL AND NOT cancelled RETURNING true

-- name: change_job
-- Change a waiting job. Fields that are NULL or not given stay as they are.
--   $1   topic's name
--   $2   topic's id
--   $3   oid of the topic's sequence
--   $4   job's seq
--   $5   payload
--   $6   payload's content type
--   $7   whether metadata is given
--   $8   metadata
--   $9   whether a tag is given
--   $10  tag
--   $11  priority
--   $12  delay in ms
--   $13  run_at; the later of $12 and $13 counts
-- One row:
--   status   NULL without such a job, otherwise pending, leased, failed, expired or cancelled; only pending jobs change
--   changed  false for a pending job: run the statement again, as in ack
--   was      state before
--   ready    whether it is in the fresh part of its lane
--   due      whether it is in the due part and can be claimed now
-- Fresh jobs keep the order in which they entered their lane, so a new priority takes a new position. A job enters the due
-- part at a time that is not in the past (ADR 0012). A lease that has ended is removed.
-- Raises unique_violation if another job with its key waits.   Index: primary key.
WITH picked AS MATERIALIZED (
    SELECT ctid AS tid, j.state::text AS was, j.priority, j.lease_id, j.node, octet_length(j.payload) AS bytes,
           holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS stands,
           $12::bigint IS NOT NULL OR $13::timestamptz IS NOT NULL AS timed,
           $11::smallint IS NOT NULL AND $11::smallint <> j.priority AS moves
    FROM holdfast.jobs j WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = $4::bigint
    FOR UPDATE
), done AS (
    UPDATE holdfast.jobs j
    SET payload = coalesce($5::bytea, j.payload),
        content_type = CASE WHEN $5::bytea IS NULL THEN j.content_type ELSE $6::text END,
        metadata = CASE WHEN $7::boolean THEN $8::json ELSE j.metadata END,
        tag = CASE WHEN $9::boolean THEN $10::text ELSE j.tag END,
        priority = coalesce($11::smallint, j.priority),
        state = CASE WHEN p.was = 'leased' OR (p.was = 'ready' AND p.timed) THEN 'scheduled'::holdfast.job_state
                     ELSE j.state END,
        position = CASE WHEN p.was = 'ready' AND p.moves THEN nextval($3::oid::regclass) ELSE j.position END,
        visible_at = CASE WHEN p.timed THEN greatest(clock_timestamp() + $12::bigint * interval '1 ms',
                                                     $13::timestamptz, clock_timestamp())
                          WHEN p.was = 'leased' OR (p.was = 'scheduled' AND p.moves)
                              THEN greatest(j.visible_at, clock_timestamp())
                          ELSE j.visible_at END,
        crashes = j.crashes + (p.was = 'leased')::integer, lease_id = NULL, node = NULL, updated_at = clock_timestamp()
    FROM picked p WHERE j.ctid = p.tid AND p.stands IN ('ready', 'scheduled', 'blocked')
    RETURNING p.was, p.bytes, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, j.state::text AS state, j.visible_at,
              octet_length(j.payload) AS bytes_now
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, until)
    SELECT $1, topic_id, seq, 'updated', deliveries, lease_id, node, CASE WHEN state = 'scheduled' THEN visible_at END
    FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, leased, bytes)
    SELECT topic_id, (state = 'ready')::integer - (was = 'ready')::integer,
           (state = 'scheduled')::integer - (was = 'scheduled')::integer, -(was = 'leased')::integer, bytes_now - bytes
    FROM done WHERE (state, bytes_now) <> (was, bytes)
)
SELECT CASE WHEN p.stands IN ('ready', 'scheduled', 'blocked') THEN 'pending' ELSE p.stands END AS status,
       d.was IS NOT NULL AS changed, d.was, coalesce(d.state = 'ready', false) AS ready,
       coalesce(d.state = 'scheduled' AND d.visible_at <= clock_timestamp(), false) AS due
FROM (SELECT 1) one LEFT JOIN picked p ON true LEFT JOIN done d ON true

-- name: end_operation
-- End an operation. One row: true. No row: it has ended already.   Index: primary key.
--   $1  operation's id
--   $2  final state
--   $3  reason, or NULL
--   $4  how many jobs failed again
UPDATE holdfast.operations SET state = $2, reason = $3, failed_again = $4, ended_at = clock_timestamp()
WHERE id = $1 AND ended_at IS NULL RETURNING true

-- name: find_dead
-- The next dead letters in a topic that match, oldest first. Leased ones are skipped.
--   $1   name of the topic that they are in
--   $2   its id
--   $3   only after the place with this time
--   $4   and this seq
--   $5   only dead by this time
--   $6   only from this topic, or NULL
--   $7   only from topics with one of these prefixes (empty: all)
--   $8   text in the last error, or NULL
--   $9   tag, or NULL
--   $10  key, or NULL
--   $11  tenant, or NULL
--   $12  jobs to search at most
--   $13  matches at most
--   $14  cluster, or NULL
-- One row: seqs, ascending; more, whether there may be others; last_time and last_seq, the place to continue after, NULL
-- if nothing was searched.   Index: jobs_dead.
WITH looked AS MATERIALIZED (
    SELECT j.seq, j.dlq_moved_at AS at,
           (j.state::text <> 'leased' OR j.visible_at < now()) AND j.topic_id = $2::integer
           AND ($6::text IS NULL OR j.original_topic = $6::text) AND
           ($8::text IS NULL OR strpos(j.last_error, $8::text) > 0) AND ($9::text IS NULL OR j.tag = $9::text)
           AND ($10::text IS NULL OR j.key = $10::text) AND ($14::text IS NULL OR j.cluster = $14::text)
           AND ($11::text IS NULL OR coalesce(j.original_tenant, j.tenant) = $11::text)
           AND (cardinality($7::text[]) = 0
                OR EXISTS (SELECT 1 FROM unnest($7::text[]) AS s(s)
                           WHERE starts_with(coalesce(j.original_topic, j.topic) || '$', s.s))) AS fits
    FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.dlq_moved_at IS NOT NULL AND j.dlq_moved_at >= $3::timestamptz
      AND (j.dlq_moved_at, j.seq) > ($3::timestamptz, $4::bigint) AND j.dlq_moved_at <= $5::timestamptz
    ORDER BY j.dlq_moved_at, j.seq LIMIT $12::integer
), hits AS MATERIALIZED (
    SELECT l.seq, l.at FROM looked l WHERE l.fits ORDER BY l.at, l.seq LIMIT $13::integer
), last AS (
    SELECT h.at, h.seq FROM hits h WHERE (SELECT count(*) FROM hits) = $13::integer
    UNION ALL
    SELECT l.at, l.seq FROM looked l WHERE (SELECT count(*) FROM hits) < $13::integer
)
SELECT array(SELECT h.seq FROM hits h ORDER BY h.seq) AS seqs,
       (SELECT count(*) FROM hits) = $13::integer OR (SELECT count(*) FROM looked) = $12::integer AS more,
       (SELECT max(l.at) FROM last l) AS last_time,
       (SELECT max(l.seq) FROM last l WHERE l.at = (SELECT max(n.at) FROM last n)) AS last_seq

-- name: find_failed
-- The next jobs of a topic that failed in place and match, oldest first. Dead letters are not among them.
--   $1   topic's name
--   $2   topic's id
--   $3   only after the place with this time
--   $4   and this seq
--   $5   only failed by this time
--   $6   the topic's name again, or NULL
--   $7   only if the topic's name has one of these prefixes (empty: any)
--   $8   text in the last error, or NULL
--   $9   tag, or NULL
--   $10  key, or NULL
--   $11  tenant, or NULL
--   $12  jobs to search at most
--   $13  matches at most
--   $14  cluster, or NULL
-- One row, as in find_dead.   Index: jobs_finished.
WITH looked AS MATERIALIZED (
    SELECT j.seq, j.updated_at AS at,
           j.state::text = 'failed' AND j.dlq_moved_at IS NULL AND j.topic_id = $2::integer
           AND ($6::text IS NULL OR j.topic = $6::text) AND
           ($8::text IS NULL OR strpos(j.last_error, $8::text) > 0) AND ($9::text IS NULL OR j.tag = $9::text)
           AND ($10::text IS NULL OR j.key = $10::text) AND ($14::text IS NULL OR j.cluster = $14::text)
           AND ($11::text IS NULL OR coalesce(j.original_tenant, j.tenant) = $11::text)
           AND (cardinality($7::text[]) = 0
                OR EXISTS (SELECT 1 FROM unnest($7::text[]) AS s(s)
                           WHERE starts_with(coalesce(j.original_topic, j.topic) || '$', s.s))) AS fits
    FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.state IN ('failed', 'expired') AND j.updated_at >= $3::timestamptz
      AND (j.updated_at, j.seq) > ($3::timestamptz, $4::bigint) AND j.updated_at <= $5::timestamptz
    ORDER BY j.updated_at, j.seq LIMIT $12::integer
), hits AS MATERIALIZED (
    SELECT l.seq, l.at FROM looked l WHERE l.fits ORDER BY l.at, l.seq LIMIT $13::integer
), last AS (
    SELECT h.at, h.seq FROM hits h WHERE (SELECT count(*) FROM hits) = $13::integer
    UNION ALL
    SELECT l.at, l.seq FROM looked l WHERE (SELECT count(*) FROM hits) < $13::integer
)
SELECT array(SELECT h.seq FROM hits h ORDER BY h.seq) AS seqs,
       (SELECT count(*) FROM hits) = $13::integer OR (SELECT count(*) FROM looked) = $12::integer AS more,
       (SELECT max(l.at) FROM last l) AS last_time,
       (SELECT max(l.seq) FROM last l WHERE l.at = (SELECT max(n.at) FROM last n)) AS last_seq

-- name: find_out
-- Where failed and expired jobs and dead letters are, by the seqs that they have in a topic or had there before they became
-- dead letters. One row for each: topic, topic_id, seq. Leased dead letters are left out.
--   $1  topic's name
--   $2  topic's id
--   $3  seqs
--   $4  only jobs that go back to topics with one of these prefixes (empty: all)
-- Indexes: primary key, jobs_first.
SELECT j.topic, j.topic_id, j.seq
FROM unnest($3::bigint[]) AS r(seq)
CROSS JOIN LATERAL (
    SELECT j.topic, j.topic_id, j.seq, j.original_topic FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.seq = r.seq AND j.topic_id = $2::integer
      AND (j.state::text IN ('failed', 'expired')
           OR (j.dlq_moved_at IS NOT NULL AND (j.state::text <> 'leased' OR j.visible_at < now())))
    UNION ALL
    SELECT j.topic, j.topic_id, j.seq, j.original_topic FROM holdfast.jobs j
    WHERE j.first_topic_id = $2::integer AND j.first_seq = r.seq AND j.original_topic = $1 AND j.dlq_moved_at IS NOT NULL
      AND (j.state::text <> 'leased' OR j.visible_at < now())
) j
WHERE cardinality($4::text[]) = 0
   OR EXISTS (SELECT 1 FROM unnest($4::text[]) AS s(s) WHERE starts_with(coalesce(j.original_topic, j.topic) || '$', s.s))
ORDER BY j.topic, j.seq

-- name: hold_operation
-- Lock an operation of this process for the transaction and renew its heartbeat.   $1 id  $2 owner
-- One row, as in read_operation. No row: it has ended, or belongs to another process.   Index: primary key.
UPDATE holdfast.operations o SET heartbeat_at = clock_timestamp()
WHERE o.id = $1 AND o.owner = $2 AND o.ended_at IS NULL
RETURNING o.id, o.topic, o.topic_id, o.dead_topic, o.dead_id, o.state, o.reason, o.matched, o.matched_exact, o.requeued, o.skipped,
       o.failed_again, o.rate, o.filter, o.canary, o.canary_jobs, o.canary_until, o.canary_until < clock_timestamp() AS late,
       o.seqs, o.starts, o.stage, o.after_time, o.after_seq, o.until_time, o.cancelled, o.started_at, o.ended_at, o.actor,
       o.actor_name, o.address, o.cancels, o.gone, o.marked

-- name: leave_operation
-- Leave an operation to another process.   $1 id  $2 owner
-- One row: true. No row: it has ended, or belongs to another process.   Index: primary key.
UPDATE holdfast.operations SET heartbeat_at = '-infinity' WHERE id = $1 AND owner = $2 AND ended_at IS NULL
RETURNING true

-- name: list_operations
-- A topic's operations, running ones first, then newest first. Searches the running operations of all topics and the latest
-- ended ones. Rows as in read_operation.   Indexes: operations_under_way, operations_ended, primary key.
--   $1  topic's name
--   $2  operations of either kind to search at most
--   $3  rows at most
WITH looked AS MATERIALIZED (
    (SELECT o.id FROM holdfast.operations o WHERE o.ended_at IS NULL ORDER BY o.heartbeat_at DESC LIMIT $2::integer)
    UNION ALL
    (SELECT o.id FROM holdfast.operations o WHERE o.ended_at IS NOT NULL ORDER BY o.ended_at DESC LIMIT $2::integer)
)
SELECT x.* FROM looked l CROSS JOIN LATERAL (
    SELECT o.id, o.topic, o.topic_id, o.dead_topic, o.dead_id, o.state, o.reason, o.matched, o.matched_exact, o.requeued,
           o.skipped, o.failed_again, o.rate, o.filter, o.canary, o.canary_jobs, o.canary_until,
           o.canary_until < clock_timestamp() AS late, o.seqs, o.starts, o.stage, o.after_time, o.after_seq, o.until_time,
           o.cancelled, o.started_at, o.ended_at, o.actor, o.actor_name, o.address, o.cancels,
           o.gone, o.marked
    FROM holdfast.operations o WHERE o.id = l.id AND o.topic = $1
) x
ORDER BY x.ended_at IS NOT NULL, x.started_at DESC, x.id LIMIT $3::integer

-- name: read_operation
-- An operation.   $1 id   No row: it doesn't exist, or was deleted by the sweep.   Index: primary key.
SELECT o.id, o.topic, o.topic_id, o.dead_topic, o.dead_id, o.state, o.reason, o.matched, o.matched_exact, o.requeued, o.skipped,
       o.failed_again, o.rate, o.filter, o.canary, o.canary_jobs, o.canary_until, o.canary_until < clock_timestamp() AS late,
       o.seqs, o.starts, o.stage, o.after_time, o.after_seq, o.until_time, o.cancelled, o.started_at, o.ended_at, o.actor,
       o.actor_name, o.address, o.cancels, o.gone, o.marked
FROM holdfast.operations o WHERE o.id = $1

-- name: requeue
-- Requeue jobs: dead letters into the topics that they came from, failed and expired jobs in their own topic. They keep
-- their keys and get all their deliveries and a new time to live.
--   $1  name of the topic that they are in
--   $2  its id
--   $3  seqs, ascending
--   $4  only dead letters from this topic, or NULL
--   $5  only into topics whose names, followed by $, have one of these prefixes (empty: all)
--   $6  default time to live in ms
-- One row for each dead letter, failed or expired job that is not leased:
--   given_seq                 its seq before
--   outcome                   requeued, key_conflict (a pending job has its key) or topic_gone (the queue doesn't exist)
--   to_topic, to_id, to_seq   where it is now
--   id_topic, id_seq          the topic and seq in its id
--   was                       its state before
-- Raises undefined_object or internal_error if a topic was deleted meanwhile.
-- The function: functions/requeue.sql. Indexes: primary key, jobs_pending_key.
SELECT q.given_seq, q.outcome, q.to_topic, q.to_id, q.to_seq, q.id_topic, q.id_seq, q.was
FROM holdfast.requeue($1::text, $2::integer, $3::bigint[], $4::text, $5::text[], $6::bigint) q

-- name: sweep_dead
-- Delete dead letters that are older than their retention. Leased ones stay. Readers are told of those that were live.
-- One row: how many were deleted.   Index: jobs_dead.
--   $1  topic's name
--   $2  retention, an interval
--   $3  jobs to delete at most
WITH picked AS MATERIALIZED (
    SELECT ctid AS tid, j.state::text AS was, j.lease_id, j.node FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.dlq_moved_at IS NOT NULL AND j.dlq_moved_at < now() - $2::interval
      AND (j.state::text <> 'leased' OR j.visible_at < now())
    ORDER BY j.dlq_moved_at, j.seq LIMIT $3::integer FOR UPDATE SKIP LOCKED
), done AS (
    DELETE FROM holdfast.jobs j USING picked p WHERE j.ctid = p.tid
    RETURNING p.was, p.lease_id, p.node, j.topic_id, j.seq, j.deliveries, octet_length(j.payload) AS bytes
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node)
    SELECT $1, topic_id, seq, 'deleted', deliveries, lease_id, node FROM done
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, failed, expired, bytes, ttl_lost_to)
    SELECT min(topic_id), -count(*) FILTER (WHERE was = 'ready'), -count(*) FILTER (WHERE was = 'scheduled'),
           -count(*) FILTER (WHERE was = 'blocked'), -count(*) FILTER (WHERE was = 'leased'),
           -count(*) FILTER (WHERE was = 'failed'), -count(*) FILTER (WHERE was = 'expired'),
           -coalesce(sum(bytes) FILTER (WHERE was NOT IN ('failed', 'expired')), 0),
           max(seq) FILTER (WHERE was NOT IN ('failed', 'expired'))
    FROM done HAVING count(*) > 0
)
SELECT count(*) FROM done

-- name: sweep_operations
-- Delete operations that ended longer ago than an interval.   $1 interval  $2 operations at most
-- One row: how many.   Index: operations_ended.
WITH picked AS MATERIALIZED (
    SELECT o.ctid AS tid FROM holdfast.operations o WHERE o.ended_at IS NOT NULL AND o.ended_at < now() - $1::interval
    ORDER BY o.ended_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.operations o USING picked p WHERE o.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: until_time
-- A time by the database's clock.   $1 how long ago, in ms
SELECT clock_timestamp() - $1::bigint * interval '1 ms'
