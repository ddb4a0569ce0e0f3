-- name: adopt_operations
-- Take over operations whose process is dead.   $1 the new owner  $2 an interval: a process that gave no sign for so long is
--   $3 most operations
-- One row each: id.   Index: operations_under_way.
WITH left_behind AS MATERIALIZED (
    SELECT o.id FROM holdfast.operations o
    WHERE o.ended_at IS NULL AND o.heartbeat_at < now() - $2::interval
    ORDER BY o.heartbeat_at LIMIT $3::integer FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.operations o SET owner = $1, heartbeat_at = clock_timestamp() FROM left_behind l WHERE o.id = l.id
RETURNING o.id

-- name: advance_operation
-- Note what a batch has done, in its transaction.   $1 id  $2 state  $3 requeued  $4 skipped  $5 failed again, in all
--   $6 stage  $7, $8 the place that it has come to: a time and a seq  $9 the first jobs, as JSON
--   $10 for how long those are waited for, in ms, NULL for as it is  $11 gone  $12 marked
-- Answers one row: true.   Index: primary key.
UPDATE holdfast.operations
SET state = $2, requeued = requeued + $3::bigint, skipped = skipped + $4::bigint, failed_again = $5, stage = $6,
    after_time = $7, after_seq = $8, canary_jobs = $9,
    gone = gone + $11::bigint, marked = marked + $12::bigint,
    canary_until = coalesce(clock_timestamp() + $10::bigint * interval '1 ms', canary_until)
WHERE id = $1 AND ended_at IS NULL RETURNING true

-- name: begin_operation
-- Keep a new operation, which a process of this name runs.   $1 id  $2 owner  $3 topic  $4 its id
--   $5 the topic of its dead letters, or NULL  $6 its id  $7 out by then  $8 seqs, or NULL: by filter
--   $9 starts of the names of topics that it may requeue into, none for all  $10 filter as JSON, NULL of a cancel  $11 jobs a second, 0 for no bound
--   $12 canary as JSON, or NULL  $13 how many match  $14 whether that is exact  $15, $16, $17 who asks: id, name, address
--   $18 of a cancel, what it is to match, as JSON
INSERT INTO holdfast.operations (id, owner, topic, topic_id, dead_topic, dead_id, until_time, seqs, starts, filter, rate,
                                 canary, matched, matched_exact, actor, actor_name, address, cancels, state, started_at,
                                 heartbeat_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::json, $13, $14, $15, $16, $17, $18,
        CASE WHEN $12::json IS NULL THEN 'running' ELSE 'canary' END, clock_timestamp(), clock_timestamp())

-- name: canary
-- What became of jobs that were requeued first.   $1 JSON: a list of {topic, topic_id, seq, id_topic, id_seq}
-- Answers one row: failed, how many are out again; gone, how many came to their end otherwise: acknowledged, as a rule.
-- The others wait or are being worked on. Indexes: primary key, jobs_first; it names all topics, as find_letters does.
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
-- Cancel jobs: one that waits, a lease that has ended included, is gone at once; one under a good lease is marked: the
-- lease goes on, and whatever ends it but an ack ends the job too. A marked job leaves its group, with the note that
-- promote looks for (docs/adr/0033): the group goes on at once. Which group that was stays in left_grp.
--   $1 topic  $2 topic id  $3 seqs, ascending
-- Answers one row: places in $3 (from 1), `gone` and `marked`; `ready`, how many of those that are gone were fresh; and
-- `picked`, those that were locked: the caller runs the statement again for what is in none of the others, as in ack.
-- A job that failed or expired is left, and so is one that is not there.
-- A mark lets the job outlive its time, so that claims, keys and sweeps see to it as to any that has (see expire). It
-- says now(): a lease that was good then has ended at the earliest at that time, so whoever finds it ended finds this
-- in the past.   Index: primary key (see ack).
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
-- Ask an operation to end; whoever runs it does, after the batch that it is at.   $1 id
-- Answers one row: true. No row: it has ended, or was asked before.   Index: primary key.
UPDATE holdfast.operations SET cancelled = true WHERE id = $1 AND ended_at IS NULL AND NOT cancelled RETURNING true

-- name: change_job
-- Change a job that waits. What is NULL, or not given, stays as it is.
--   $1 topic  $2 topic id  $3 oid of the topic's sequence  $4 seq
--   $5 payload  $6 its content type  $7 whether metadata is given  $8 metadata  $9 whether a tag is  $10 tag  $11 priority
--   $12 delay in ms  $13 run_at; of the two the later is when the job can be had
-- Answers one row: status, NULL if there is no such job, else pending, leased, failed, expired or cancelled, of which only a
-- pending one changes; changed (false for a pending one: run it again, as in ack); was, its state before; ready, due: whether it
-- is in its lane's fresh part, or in the other and can be had by now.
-- Fresh jobs are in the order in which they came into their lane: with another priority, one takes a new position. What
-- comes into the due part of a lane does so at a time that is not past (ADR 0012). A lease that has ended is over.
-- Raises unique_violation where another job of its key waits.   Index: primary key.
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
-- End an operation.   $1 id  $2 state  $3 why, or NULL  $4 how many failed again
-- Answers one row: true. No row: it has ended.   Index: primary key.
UPDATE holdfast.operations SET state = $2, reason = $3, failed_again = $4, ended_at = clock_timestamp()
WHERE id = $1 AND ended_at IS NULL RETURNING true

-- name: find_dead
-- The next dead letters of a topic that match, those that have been dead for longest first.
--   $1 the topic that they are in  $2 its id  $3, $4 after this place: a time and a seq  $5 dead by then
--   $6 only those of this topic, or NULL  $7 only those of topics whose names start with one of these, none for all
--   $8 their error contains this, or NULL  $9 tag, or NULL  $10 key, or NULL  $11 tenant, or NULL
--   $12 most jobs to look at  $13 most that match  $14 cluster, or NULL
-- Answers one row: seqs, ascending; more, whether there may be others behind; last_time and last_seq, the place to go on
-- after, NULL where there was nothing. What is under a good lease is passed.   Index: jobs_dead.
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
-- The next jobs of a topic that failed in place and match, those that failed first first. Dead letters are not among them.
--   $1 topic  $2 its id  $3, $4 after this place: a time and a seq  $5 failed by then  $6 this topic too, or NULL
--   $7 only if the topic's name starts with one of these, none for any
--   $8 their error contains this, or NULL  $9 tag, or NULL  $10 key, or NULL  $11 tenant, or NULL
--   $12 most jobs to look at  $13 most that match  $14 cluster, or NULL
-- Answers one row, as find_dead does.   Index: jobs_finished.
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
-- Where jobs are that are out, by the seqs that people know: those that they have in the topic, or had there before they
-- became dead letters.
--   $1 topic  $2 its id  $3 seqs  $4 only into topics whose names start with one of these, none for all
-- One row a job that is out: topic, topic_id, seq. One under a good lease is left out.   Indexes: primary key, jobs_first.
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
-- An operation that this process runs, locked to the end of the transaction, with a sign of life.   $1 id  $2 owner
-- Answers one row, as read_operation does. No row: it has ended, or is another process's.   Index: primary key.
UPDATE holdfast.operations o SET heartbeat_at = clock_timestamp()
WHERE o.id = $1 AND o.owner = $2 AND o.ended_at IS NULL
RETURNING o.id, o.topic, o.topic_id, o.dead_topic, o.dead_id, o.state, o.reason, o.matched, o.matched_exact, o.requeued, o.skipped,
       o.failed_again, o.rate, o.filter, o.canary, o.canary_jobs, o.canary_until, o.canary_until < clock_timestamp() AS late,
       o.seqs, o.starts, o.stage, o.after_time, o.after_seq, o.until_time, o.cancelled, o.started_at, o.ended_at, o.actor,
       o.actor_name, o.address, o.cancels, o.gone, o.marked

-- name: leave_operation
-- Leave an operation to another process.   $1 id  $2 owner
-- Answers one row: true. No row: it has ended, or is another's already.   Index: primary key.
UPDATE holdfast.operations SET heartbeat_at = '-infinity' WHERE id = $1 AND owner = $2 AND ended_at IS NULL
RETURNING true

-- name: list_operations
-- A topic's operations, those under way before others, the newest first. They are looked for among those of all topics
-- that are under way, and among those that ended last.
--   $1 topic  $2 most to look at of either kind  $3 most to answer
-- Rows as read_operation's.   Indexes: operations_under_way, operations_ended, primary key.
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
-- An operation as it is.   $1 id   No row: there is no such operation, or it was forgotten.   Index: primary key.
SELECT o.id, o.topic, o.topic_id, o.dead_topic, o.dead_id, o.state, o.reason, o.matched, o.matched_exact, o.requeued, o.skipped,
       o.failed_again, o.rate, o.filter, o.canary, o.canary_jobs, o.canary_until, o.canary_until < clock_timestamp() AS late,
       o.seqs, o.starts, o.stage, o.after_time, o.after_seq, o.until_time, o.cancelled, o.started_at, o.ended_at, o.actor,
       o.actor_name, o.address, o.cancels, o.gone, o.marked
FROM holdfast.operations o WHERE o.id = $1

-- name: requeue
-- Give jobs that are out another life: dead letters back in their topics, failed and expired jobs where they are. Under
-- their old keys, with a whole budget and their time to live anew.
--   $1 topic that they are in  $2 its id  $3 seqs, ascending  $4 only dead letters of this topic, or NULL
--   $5 only into topics whose names, with $ behind, start with one of these, none for all  $6 the TTL in ms where nobody chose one
-- One row a job that is out: given_seq; outcome: requeued, key_conflict (a pending job has its key) or topic_gone (there
-- is no such queue); to_topic, to_id and to_seq, where it is now; id_topic and id_seq, by which its id names it; was, its
-- state before. No row: it is not out, or under a good lease, or gone.
-- Raises undefined_object, or internal_error, when a topic was deleted meanwhile.
-- The function: functions/requeue.sql. Indexes: primary key, jobs_pending_key.
SELECT q.given_seq, q.outcome, q.to_topic, q.to_id, q.to_seq, q.id_topic, q.id_seq, q.was
FROM holdfast.requeue($1::text, $2::integer, $3::bigint[], $4::text, $5::text[], $6::bigint) q

-- name: sweep_dead
-- Delete dead letters whose retention has passed. What is under a good lease stays.
--   $1 topic  $2 how long they are kept, an interval  $3 most jobs to delete
-- Readers are told of those that were live. Answers one row: how many were deleted.   Index: jobs_dead.
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
-- Forget operations that ended long ago.   $1 how long they are kept, an interval  $2 most operations
-- Answers one row: how many.   Index: operations_ended.
WITH picked AS MATERIALIZED (
    SELECT o.ctid AS tid FROM holdfast.operations o WHERE o.ended_at IS NOT NULL AND o.ended_at < now() - $1::interval
    ORDER BY o.ended_at LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.operations o USING picked p WHERE o.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: until_time
-- A time of the database's.   $1 how long ago, in ms
SELECT clock_timestamp() - $1::bigint * interval '1 ms'
