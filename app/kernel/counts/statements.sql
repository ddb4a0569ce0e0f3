-- name: count
-- Count a topic's jobs.
--   $1  topic
--   $2  topic id
--   $3  whether deliveries are limited here
--   $4  the topic's max_deliveries
--   $5  most due or expired jobs to read; NULL for all
--   $6  tallies above this id
--   Low marks of the lanes that have some:
--   $7  tenants
--   $8  priorities
--   $9  times in µs since 1970
-- Answers one row:
--   ready      ready or due, without expired jobs and jobs with no deliveries left
--   in_flight  leased, before their deadline
--   scheduled  not due yet
--   blocked    waiting for their group
--   count      all unfinished jobs: the above, and jobs with no deliveries left that were not removed yet
--   looked     most entries that were read from one index: the counts are exact if it is below $5
-- The tallies have the number of jobs in each state. Changes by time alone are counted.
-- The ORDER BYs keep the planner on the indexes.
-- Indexes: primary key of tallies, primary key of lanes, jobs_expiring, jobs_due.
WITH lane AS MATERIALIZED (
    SELECT l.tenant, l.priority,
           coalesce(timestamptz 'epoch' + m.due_low * interval '1 microsecond', '-infinity') AS due_low
    FROM holdfast.lanes l
    LEFT JOIN unnest($7::text[], $8::smallint[], $9::bigint[]) AS m(tenant, priority, due_low)
        ON m.tenant = l.tenant AND m.priority = l.priority
    WHERE l.topic = $1
)
SELECT (stored.ready - stale.ready + due.ready)::bigint AS ready, (stored.leased - due.ended)::bigint AS in_flight,
       (stored.scheduled - due.n + due.ended)::bigint AS scheduled, stored.blocked::bigint AS blocked,
       (stored.ready + stored.scheduled + stored.blocked + stored.leased - stale.hidden)::bigint AS count,
       greatest(stale.n, due.n) AS looked
FROM (
    SELECT coalesce(sum(ready), 0) AS ready, coalesce(sum(scheduled), 0) AS scheduled,
           coalesce(sum(blocked), 0) AS blocked, coalesce(sum(leased), 0) AS leased
    FROM holdfast.tallies t WHERE t.topic_id = $2 AND t.id > $6
) stored CROSS JOIN (
    SELECT count(*) AS n, count(*) FILTER (WHERE ready) AS ready, count(*) FILTER (WHERE NOT shielded) AS hidden FROM (
        SELECT j.state::text = 'ready' AS ready, j.state::text = 'leased' AND j.visible_at >= now() AS shielded
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.expires_at IS NOT NULL AND j.expires_at <= now()
          AND j.state IN ('ready', 'scheduled', 'blocked', 'leased')
        ORDER BY j.expires_at LIMIT $5::integer
    ) e
) stale CROSS JOIN (
    SELECT count(*) AS n, count(*) FILTER (WHERE NOT spent) AS ready, count(*) FILTER (WHERE leased) AS ended
    FROM (
        SELECT one.* FROM lane l CROSS JOIN LATERAL (
            SELECT j.state::text = 'leased' AS leased,
                   coalesce(j.expires_at <= now(), false)
                   OR ($3::boolean AND coalesce(j.max_deliveries, $4::integer) > 0
                       AND j.deliveries >= coalesce(j.max_deliveries, $4::integer)) AS spent
            FROM holdfast.jobs j
            WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
              AND j.state IN ('leased', 'scheduled') AND j.visible_at > l.due_low AND j.visible_at < now()
            ORDER BY j.visible_at LIMIT $5::integer
        ) one LIMIT $5::integer
    ) d
) due

-- name: depths
-- How much queues hold.
--   Topics:
--   $1   names
--   $2   ids
--   $3   whether deliveries are limited there
--   $4   max_deliveries
--   $5   tallies above this id
--   $6   most due or expired jobs of a topic to read
--   Low marks of the lanes that have some:
--   $7   topics
--   $8   tenants
--   $9   priorities
--   $10  positions
--   $11  times in µs since 1970
-- One row per topic: ready, in_flight, scheduled, blocked and `looked` as in count; bytes of payloads, including
-- expired jobs that are not marked yet; oldest_ms, how long the oldest ready job has been claimable (NULL: none is).
-- Starts at the marks. Takes no locks and waits for none.
-- Indexes: primary key of tallies, primary key of lanes, jobs_ready, jobs_expiring, jobs_due.
WITH lane AS MATERIALIZED (
    SELECT one.topic, one.tenant, one.priority, max(one.low) AS low, max(one.due_low) AS due_low
    FROM (
        SELECT l.topic, l.tenant, l.priority, 0::bigint AS low, timestamptz '-infinity' AS due_low
        FROM holdfast.lanes l WHERE l.topic = ANY ($1::text[])
        UNION ALL
        SELECT m.topic, m.tenant, m.priority, m.low, timestamptz 'epoch' + m.due_low * interval '1 microsecond'
        FROM unnest($7::text[], $8::text[], $9::smallint[], $10::bigint[], $11::bigint[])
            AS m(topic, tenant, priority, low, due_low)
    ) one
    GROUP BY one.topic, one.tenant, one.priority
), t AS MATERIALIZED (
    -- Grouped instead of joined: without hash and merge joins, a join would compare every topic with every lane.
    SELECT one.topic, max(one.topic_id) AS topic_id, bool_or(one.ends) AS ends, max(one.most) AS most,
           max(one.tally) AS tally,
           array_agg(one.tenant) FILTER (WHERE one.ends IS NULL) AS tenants,
           array_agg(one.priority) FILTER (WHERE one.ends IS NULL) AS priorities,
           array_agg(one.low) FILTER (WHERE one.ends IS NULL) AS lows,
           array_agg(one.due_low) FILTER (WHERE one.ends IS NULL) AS due_lows
    FROM (
        SELECT q.topic, q.topic_id, q.ends, q.most, q.tally, NULL::text AS tenant, NULL::smallint AS priority,
               NULL::bigint AS low, NULL::timestamptz AS due_low
        FROM unnest($1::text[], $2::integer[], $3::boolean[], $4::integer[], $5::bigint[])
            AS q(topic, topic_id, ends, most, tally)
        UNION ALL
        SELECT topic, NULL, NULL, NULL, NULL, tenant, priority, low, due_low FROM lane
    ) one
    GROUP BY one.topic
)
SELECT t.topic, (stored.ready - stale.ready + due.ready)::bigint AS ready,
       (stored.leased - due.ended)::bigint AS in_flight,
       (stored.scheduled - due.n + due.ended)::bigint AS scheduled, stored.blocked::bigint AS blocked,
       stored.bytes::bigint AS bytes, greatest(stale.n, due.n) AS looked,
       (date_part('epoch', now() - least(head.since, due.since)) * 1000)::bigint AS oldest_ms
FROM t CROSS JOIN LATERAL (
    SELECT coalesce(sum(y.ready), 0) AS ready, coalesce(sum(y.scheduled), 0) AS scheduled,
           coalesce(sum(y.blocked), 0) AS blocked, coalesce(sum(y.leased), 0) AS leased,
           coalesce(sum(y.bytes), 0) AS bytes
    FROM holdfast.tallies y WHERE y.topic_id = t.topic_id AND y.id > t.tally
) stored CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE ready) AS ready FROM (
        SELECT j.state::text = 'ready' AS ready FROM holdfast.jobs j
        WHERE j.topic = t.topic AND j.expires_at IS NOT NULL AND j.expires_at <= now()
          AND j.state IN ('ready', 'scheduled', 'blocked', 'leased')
        ORDER BY j.expires_at LIMIT $6::integer
    ) e
) stale CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE NOT spent) AS ready, count(*) FILTER (WHERE leased) AS ended,
           min(visible_at) FILTER (WHERE NOT spent) AS since
    FROM (
        SELECT one.* FROM unnest(t.tenants, t.priorities, t.due_lows) AS l(tenant, priority, due_low)
        CROSS JOIN LATERAL (
            SELECT j.visible_at, j.state::text = 'leased' AS leased,
                   coalesce(j.expires_at <= now(), false)
                   OR (t.ends AND coalesce(j.max_deliveries, t.most) > 0
                       AND j.deliveries >= coalesce(j.max_deliveries, t.most)) AS spent
            FROM holdfast.jobs j
            WHERE j.topic = t.topic AND j.tenant = l.tenant AND j.priority = l.priority
              AND j.state IN ('leased', 'scheduled') AND j.visible_at > l.due_low AND j.visible_at < now()
            ORDER BY j.visible_at LIMIT $6::integer
        ) one LIMIT $6::integer
    ) d
) due CROSS JOIN LATERAL (
    SELECT min(f.visible_at) AS since
    FROM unnest(t.tenants, t.priorities, t.lows) AS l(tenant, priority, low) CROSS JOIN LATERAL (
        SELECT e.visible_at FROM (
            SELECT j.visible_at, j.expires_at FROM holdfast.jobs j
            WHERE j.topic = t.topic AND j.tenant = l.tenant AND j.priority = l.priority AND j.state = 'ready'
              AND j.position > l.low
            ORDER BY j.position LIMIT $6::integer
        ) e WHERE e.expires_at IS NULL OR e.expires_at > now() LIMIT 1
    ) f
) head

-- name: drawers
-- Which transactions may still commit a job with a seq that was drawn already?   $1 oid of the topic's sequence
-- One row: the virtual ids of open transactions that have drawn from it. Drawing locks the sequence until the end of
-- the transaction, and the lock is released after its changes are visible.
SELECT array(
    SELECT DISTINCT l.virtualtransaction FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
      AND l.relation = $1::oid AND l.pid <> pg_backend_pid()
) AS drawers

-- name: draws
-- How far were the sequences of topics drawn?   $1 topic ids  $2 oids of their sequences, one per topic
-- One row per topic: topic_id; drawn, 0 for never; tally, the last id of all topics' tallies; `at`, the clock in µs
-- since 1970, read before the snapshot of any later statement. Leaves out topics whose sequence was dropped, or that
-- are being deleted: a deletion can take minutes, and this does not wait for its lock.
SELECT t.topic_id, coalesce(pg_sequence_last_value(t.sequence::regclass), 0) AS drawn,
       coalesce(pg_sequence_last_value('holdfast.tallies_id_seq'::regclass), 0) AS tally,
       (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS at
FROM unnest($1::integer[], $2::oid[]) AS t(topic_id, sequence)
WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = t.sequence)
  AND NOT EXISTS (
    SELECT 1 FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'relation' AND l.relation = t.sequence AND l.mode = 'AccessExclusiveLock'
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
  )

-- name: failing_heads
-- Heads of groups that have failed for longer than jobs may wait, according to the ledger.
--   Heads:
--   $1   topics
--   $2   their ids
--   $3   how long their jobs may wait, in ms
--   $4   tenants
--   $5   groups
--   $6   the heads' seqs
--   $7   since when the first job behind each has waited
--   $8   until when it was leased or delayed
--   $9   most events of each head to read
--   $10  most jobs of a group to count
-- One row per head that has failed for so long: topic; failing_ms, until $8; behind, how many jobs wait in its group.
-- A head has been failing since its first claim after it was enqueued, requeued, or had a delivery given back. The
-- ledger is read from $7 on: what counts is how long the jobs behind the head have waited.
-- Indexes: lease_events_read, jobs_blocked.
SELECT t.topic, s.failing_ms, b.behind
FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::timestamptz[],
            $8::timestamptz[]) AS t(topic, topic_id, goal_ms, tenant, grp, seq, since, till)
CROSS JOIN LATERAL (
    SELECT (date_part('epoch', t.till - coalesce(max(e.at) FILTER (WHERE e.deliveries = 1), min(e.at))) * 1000)::bigint AS failing_ms
    FROM holdfast.job_events(t.topic_id, t.seq, t.since, $9::integer) e WHERE e.event = 'claimed'
) s
CROSS JOIN LATERAL (
    SELECT count(*) AS behind FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE s.failing_ms >= t.goal_ms AND j.topic = t.topic AND j.tenant = t.tenant AND j.grp = t.grp
          AND j.state = 'blocked' LIMIT $10::integer
    ) y
) b
WHERE s.failing_ms >= t.goal_ms

-- name: fold
-- Fold topics' tallies into one row each.
--   $1  topic ids
--   $2  fold tallies above this id, per topic
--   $3  and not above this id
-- Answers nothing. Counts are added up; of seqs that were lost the last one stays. Adds up only rows that it deleted
-- itself: a concurrent fold waits, and then finds them gone. Locks by topic id and id, as drop_tallies and orphans do.
-- After its commit no row with an id from $2 to $3 is left, unless a transaction was still adding one.
-- Index: primary key of tallies.
WITH picked AS MATERIALIZED (
    SELECT x.tid
    FROM (SELECT f.topic_id, f.low FROM unnest($1::integer[], $2::bigint[]) AS f(topic_id, low) ORDER BY f.topic_id) f
    CROSS JOIN LATERAL (
        SELECT t.ctid AS tid FROM holdfast.tallies t
        WHERE t.topic_id = f.topic_id AND t.id > f.low AND t.id <= $3::bigint
        ORDER BY t.id
        FOR UPDATE
    ) x
), gone AS (
    DELETE FROM holdfast.tallies t USING picked p WHERE t.ctid = p.tid
    RETURNING t.topic_id, t.ready, t.scheduled, t.blocked, t.leased, t.dead_lettered, t.bytes,
        t.failed, t.expired, t.ttl_lost_to, t.cap_lost_to
)
INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, dead_lettered, bytes,
                               failed, expired, ttl_lost_to, cap_lost_to)
SELECT topic_id, sum(ready), sum(scheduled), sum(blocked), sum(leased), sum(dead_lettered), sum(bytes),
       sum(failed), sum(expired), max(ttl_lost_to), max(cap_lost_to)
FROM gone GROUP BY topic_id

-- name: heads
-- Where do lanes begin?
--   Lanes, each once:
--   $1  topics
--   $2  tenants
--   $3  priorities
--   $4  ready jobs above this position
--   $5  due jobs after this time, in µs since 1970
-- One row per lane, in order: `ready`, the first ready job's position; `due`, the first due job's time in µs;
-- `waited_ms`, how long the earlier one has been claimable. NULL for none. Takes no locks, so locked rows count too.
-- Reads only up to now(): later entries include the deadlines of all leases that were settled early, which can't be
-- skipped while an old snapshot is open.   Indexes: jobs_ready, jobs_due.
SELECT ready.position AS ready, (date_part('epoch', due.visible_at) * 1000000)::bigint AS due,
       (date_part('epoch', now() - least(ready.visible_at, due.visible_at)) * 1000)::bigint AS waited_ms
FROM unnest($1::text[], $2::text[], $3::smallint[], $4::bigint[], $5::bigint[])
    WITH ORDINALITY AS l(topic, tenant, priority, after, due_after, ord)
LEFT JOIN LATERAL (
    SELECT j.position, j.visible_at FROM holdfast.jobs j
    WHERE j.topic = l.topic AND j.tenant = l.tenant AND j.priority = l.priority AND j.state = 'ready'
      AND j.position > l.after
    ORDER BY j.position LIMIT 1
) ready ON true
LEFT JOIN LATERAL (
    SELECT j.visible_at FROM holdfast.jobs j
    WHERE j.topic = l.topic AND j.tenant = l.tenant AND j.priority = l.priority AND j.state IN ('leased', 'scheduled')
      AND j.visible_at > timestamptz 'epoch' + l.due_after * interval '1 microsecond' AND j.visible_at < now()
    ORDER BY j.visible_at LIMIT 1
) due ON true
ORDER BY l.ord

-- name: holders
-- The nodes that hold jobs of a topic. Reads the leases that end first.
--   $1  topic
--   $2  most jobs of a lane to read
--   $3  most jobs in all
--   $4  most nodes
-- One row per node, the one with the most jobs first: node, held; in ms since 1970, leased_ms, when the oldest of its
-- leases began, and until_ms, when the first of them ends.   Index: jobs_due.
-- claimed, and until_ms, when the first of their leases ends. Those are looked at whose leases end first.   Index: jobs_due.
SELECT h.node, count(*) AS held, (date_part('epoch', min(h.leased_at)) * 1000)::bigint AS leased_ms,
       (date_part('epoch', min(h.visible_at)) * 1000)::bigint AS until_ms
FROM (
    SELECT one.node, one.leased_at, one.visible_at FROM holdfast.lanes l CROSS JOIN LATERAL (
        SELECT j.node, j.leased_at, j.visible_at, j.state::text AS state FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority
          AND j.state IN ('leased', 'scheduled') AND j.visible_at >= now()
        ORDER BY j.visible_at LIMIT $2::integer
    ) one
    WHERE l.topic = $1 AND one.state = 'leased'
    LIMIT $3::integer
) h
GROUP BY h.node ORDER BY held DESC, h.node LIMIT $4::integer

-- name: lease_of_group
-- The lease of a group's first job.
--   $1  topic
--   $2  tenant
--   $3  group
-- One row if the lease is valid: seq, lease_id, node. Takes no locks.   Index: jobs_group_out.
SELECT j.seq, j.lease_id, j.node FROM holdfast.jobs j
WHERE j.topic = $1 AND j.tenant = $2 AND j.grp = $3 AND j.grp IS NOT NULL AND j.original_topic IS NULL
  AND j.state IN ('ready', 'scheduled', 'leased') AND j.state::text = 'leased' AND j.visible_at >= now()
LIMIT 1

-- name: leases_of_node
-- A node's leases of a topic, a part of each lane at a time.
--   $1  topic
--   Lanes, each once:
--   $2  tenants
--   $3  priorities
--   $4  after this deadline
--   $5  node
--   $6  leased before this time, or NULL for now
--   $7  most leases and delays of a lane to read
-- One row per lane: `ord`, its place in $2 (from 1); seqs and leases that were found; `last`, the last deadline or
-- delay that was read (NULL: the lane has no more); `at`, now().
-- Entries with the same deadline are read together, so the next read starts after `last`. Delays that end more than 24
-- hours from now are not read, because no lease is longer than that. Takes no locks.   Index: jobs_due.
SELECT l.ord, coalesce(x.seqs, '{}') AS seqs, coalesce(x.leases, '{}') AS leases,
       CASE WHEN x.looked >= $7::integer THEN x.last END AS last, now() AS at
FROM unnest($2::text[], $3::smallint[], $4::timestamptz[]) WITH ORDINALITY AS l(tenant, priority, after, ord)
CROSS JOIN LATERAL (
    SELECT count(*) AS looked, max(one.visible_at) AS last,
           array_agg(one.seq) FILTER (WHERE one.held) AS seqs, array_agg(one.lease_id) FILTER (WHERE one.held) AS leases
    FROM (
        SELECT j.seq, j.lease_id, j.visible_at,
               j.state::text = 'leased' AND j.node = $5 AND j.leased_at <= coalesce($6::timestamptz, now()) AS held
        FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = l.tenant AND j.priority = l.priority AND j.state IN ('leased', 'scheduled')
          AND j.visible_at > l.after AND j.visible_at >= now() AND j.visible_at < now() + interval '24 hours 1 minute'
        ORDER BY j.visible_at FETCH FIRST ($7::integer) ROWS WITH TIES
    ) one
) x

-- name: long_leases
-- Leases that end later than they should. Reads the leases that end first, up to 24 hours from now, the longest lease.
--   $1  topics
--   $2  from how many ms from now on a lease is too long, per topic
--   $3  most lanes of a topic to read
--   $4  most leases and delays of a topic to read
-- One row per topic that has some: topic; leases, how many; ends_ms, in how many ms the last one ends.
-- Index: jobs_due.
SELECT t.topic, count(*) AS leases, (date_part('epoch', max(x.visible_at) - now()) * 1000)::bigint AS ends_ms
FROM unnest($1::text[], $2::bigint[]) AS t(topic, long_ms)
CROSS JOIN LATERAL (
    SELECT one.visible_at, one.state
    FROM (SELECT l.tenant, l.priority FROM holdfast.lanes l WHERE l.topic = t.topic LIMIT $3::integer) lane
    CROSS JOIN LATERAL (
        SELECT j.visible_at, j.state::text AS state FROM holdfast.jobs j
        WHERE j.topic = t.topic AND j.tenant = lane.tenant AND j.priority = lane.priority
          AND j.state IN ('leased', 'scheduled') AND j.visible_at > now() + t.long_ms * interval '1 ms'
          AND j.visible_at < now() + interval '24 hours 1 minute'
        ORDER BY j.visible_at LIMIT $4::integer
    ) one
    LIMIT $4::integer
) x
WHERE x.state = 'leased'
GROUP BY t.topic

-- name: reconcile
-- Count a topic's jobs one by one, and add a tally with the difference. It comes from writes past the service's
-- statements.
--   $1 topic  $2 topic id
-- Answers one row: by how many jobs the tallies were off. Jobs and tallies are read in one snapshot, so concurrent
-- changes affect both alike. Two at once would add the difference twice, so an earlier statement takes a lock.
-- Reads the whole topic. Index: primary key.
WITH counted AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE state::text = 'ready') AS ready,
           count(*) FILTER (WHERE state::text = 'scheduled') AS scheduled,
           count(*) FILTER (WHERE state::text = 'blocked') AS blocked,
           count(*) FILTER (WHERE state::text = 'leased') AS leased,
           count(*) FILTER (WHERE state::text = 'failed') AS failed,
           count(*) FILTER (WHERE state::text = 'expired') AS expired,
           coalesce(sum(octet_length(payload)) FILTER (WHERE state::text NOT IN ('failed', 'expired')), 0) AS bytes
    FROM holdfast.jobs j WHERE j.topic = $1
), stored AS MATERIALIZED (
    SELECT coalesce(sum(ready), 0) AS ready, coalesce(sum(scheduled), 0) AS scheduled,
           coalesce(sum(blocked), 0) AS blocked, coalesce(sum(leased), 0) AS leased, coalesce(sum(bytes), 0) AS bytes,
           coalesce(sum(failed), 0) AS failed, coalesce(sum(expired), 0) AS expired
    FROM holdfast.tallies WHERE topic_id = $2
), off AS MATERIALIZED (
    SELECT c.ready - s.ready AS ready, c.scheduled - s.scheduled AS scheduled, c.blocked - s.blocked AS blocked,
           c.leased - s.leased AS leased, c.bytes - s.bytes AS bytes, c.failed - s.failed AS failed,
           c.expired - s.expired AS expired
    FROM counted c CROSS JOIN stored s
), tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, leased, bytes, failed, expired)
    SELECT $2, ready, scheduled, blocked, leased, bytes, failed, expired FROM off
    WHERE (ready, scheduled, blocked, leased, bytes, failed, expired) <> (0, 0, 0, 0, 0, 0, 0)
)
SELECT (abs(ready) + abs(scheduled) + abs(blocked) + abs(leased) + abs(failed) + abs(expired))::bigint FROM off

-- name: reconcile_lock
-- Keep others from reconciling a topic's tallies until this transaction ends.   $1 topic id
-- Answers whether the lock was free.
SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast.reconcile', $1::integer))

-- name: state
-- What topics hold.
--   $1  topics
--   $2  their ids
--   $3  oids of their sequences
--   $4  most expired jobs to read that are not marked yet
-- One row per topic:
--   head_seq       the last seq drawn, 0 for none
--   earliest_seq   NULL: the topic is empty
--   count, bytes   of unfinished jobs and their payloads
--   last_write_ms  when the newest job that is still there was enqueued
--   dead_lettered  how many jobs ever became dead letters
--   ttl_lost_to    the last seq known to be lost to age, 0 for none
--   cap_lost_to    the last seq known to be lost to caps, 0 for none
-- Deleted topics are left out. If a topic is being deleted it waits for the end, since the deletion may be refused.
-- Indexes: primary key of jobs, jobs_expiring, primary key of tallies.
SELECT t.topic, coalesce(pg_sequence_last_value(t.sequence::regclass), 0) AS head_seq, first.earliest_seq,
       (stored.count - stale.count)::bigint AS count, (stored.bytes - stale.bytes)::bigint AS bytes,
       newest.last_write_ms, stored.dead_lettered::bigint AS dead_lettered,
       stored.ttl_lost_to, stored.cap_lost_to
FROM unnest($1::text[], $2::integer[], $3::oid[]) AS t(topic, topic_id, sequence)
CROSS JOIN LATERAL (
    SELECT coalesce(sum(ready + scheduled + blocked + leased), 0) AS count, coalesce(sum(bytes), 0) AS bytes,
           coalesce(sum(dead_lettered), 0) AS dead_lettered,
           coalesce(max(ttl_lost_to), 0) AS ttl_lost_to, coalesce(max(cap_lost_to), 0) AS cap_lost_to
    FROM holdfast.tallies WHERE topic_id = t.topic_id
) stored
CROSS JOIN LATERAL (
    SELECT count(*) AS count, coalesce(sum(bytes), 0) AS bytes
    FROM (SELECT octet_length(j.payload) AS bytes FROM holdfast.jobs j
          WHERE j.topic = t.topic AND j.expires_at IS NOT NULL AND j.expires_at <= now()
            AND j.state IN ('ready', 'scheduled', 'blocked', 'leased') AND (j.state <> 'leased' OR j.visible_at < now())
          ORDER BY j.expires_at LIMIT $4::integer) over
) stale
LEFT JOIN LATERAL (
    SELECT j.seq AS earliest_seq FROM holdfast.jobs j
    WHERE j.topic = t.topic AND j.state::text NOT IN ('failed', 'expired')
      AND (j.expires_at IS NULL OR j.expires_at > now() OR (j.state::text = 'leased' AND j.visible_at >= now()))
    ORDER BY j.seq LIMIT 1
) first ON true
LEFT JOIN LATERAL (
    SELECT (date_part('epoch', j.created_at) * 1000)::bigint AS last_write_ms FROM holdfast.jobs j
    WHERE j.topic = t.topic ORDER BY j.seq DESC LIMIT 1
) newest ON true
WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = t.sequence)

-- name: stuck_groups
-- Stuck groups of queues with blocked jobs: their first job was claimed longer ago than jobs may wait, and is still
-- leased or delayed.
--   $1  topics
--   $2  how long their jobs may wait, in ms; 0 for ever
--   After these groups:
--   $3  tenants
--   $4  groups
--   $5  most groups of a topic to read, by tenant and name
--   $6  most jobs of a group to count
--   $7  most failing heads of a topic to return
-- One row per topic:
--   looked        how many groups were read
--   tenant, grp   the last of them
--   oldest_ms     how long the first job behind a head has waited, without heads that their producer delayed
--   stuck         how many groups are stuck
--   behind        how many jobs wait in them
--   stuck_ms      how long ago their first job was claimed, at most
--   tenants, grps, seqs   heads for failing_heads: they failed twice or more, and the first job behind them has waited
--                 for that long. The heads behind which jobs have waited longest come first
--   since         when the first job behind each head began to wait
--   till          until when each head was leased or delayed: now, or its last claim
-- A job's row does not say for how long it has failed, so failing_heads asks the ledger. Heads without a recent claim
-- are left out.
-- The first job of each group is found with one index read, wherever the previous group ends.
-- Indexes: jobs_blocked, jobs_group_out.
SELECT t.topic, g.looked, g.tenant, g.grp, g.oldest_ms, g.stuck, g.behind, g.stuck_ms, g.tenants, g.grps, g.seqs, g.since, g.till
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS t(topic, goal_ms, tenant, grp)
CROSS JOIN LATERAL (
    WITH RECURSIVE first AS (
        (SELECT j.tenant, j.grp, j.visible_at FROM holdfast.jobs j
         WHERE j.topic = t.topic AND j.state = 'blocked' AND (j.tenant, j.grp) > (t.tenant, t.grp)
         ORDER BY j.tenant, j.grp, j.seq LIMIT 1)
        UNION ALL
        SELECT n.tenant, n.grp, n.visible_at FROM first f CROSS JOIN LATERAL (
            SELECT j.tenant, j.grp, j.visible_at FROM holdfast.jobs j
            WHERE j.topic = t.topic AND j.state = 'blocked' AND (j.tenant, j.grp) > (f.tenant, f.grp)
            ORDER BY j.tenant, j.grp, j.seq LIMIT 1
        ) n
    )
    SELECT count(*) AS looked, (array_agg(one.tenant ORDER BY one.tenant DESC, one.grp DESC))[1] AS tenant,
           (array_agg(one.grp ORDER BY one.tenant DESC, one.grp DESC))[1] AS grp,
           max(one.waited_ms) FILTER (WHERE o.put_off IS NOT TRUE) AS oldest_ms, count(*) FILTER (WHERE o.stuck_ms IS NOT NULL) AS stuck,
           coalesce(sum(b.behind), 0)::bigint AS behind, coalesce(max(o.stuck_ms), 0) AS stuck_ms,
           (array_agg(one.tenant ORDER BY one.since, one.grp) FILTER (WHERE f.fails))[:$7::integer] AS tenants,
           (array_agg(one.grp ORDER BY one.since, one.grp) FILTER (WHERE f.fails))[:$7::integer] AS grps,
           (array_agg(o.seq ORDER BY one.since, one.grp) FILTER (WHERE f.fails))[:$7::integer] AS seqs,
           (array_agg(one.since ORDER BY one.since, one.grp) FILTER (WHERE f.fails))[:$7::integer] AS since,
           (array_agg(o.till ORDER BY one.since, one.grp) FILTER (WHERE f.fails))[:$7::integer] AS till
    FROM (
        SELECT f.tenant, f.grp, f.visible_at AS since,
               nullif(greatest((date_part('epoch', now() - f.visible_at) * 1000)::bigint, 0), 0) AS waited_ms
        FROM first f LIMIT $5::integer
    ) one
    LEFT JOIN LATERAL (
        SELECT x.seq, x.deliveries = 0 AND x.visible_at > now() AS put_off,
               x.deliveries - (x.state = 'leased' AND x.visible_at >= now())::integer >= 2 AND x.claimed_ms < t.goal_ms AS fails,
               CASE WHEN x.visible_at >= now() THEN now() ELSE x.leased_at END AS till,
               CASE WHEN t.goal_ms > 0 AND x.deliveries > 0 AND x.visible_at >= now() AND x.claimed_ms >= t.goal_ms
                    THEN x.claimed_ms END AS stuck_ms
        FROM (
            SELECT j.seq, j.state, j.deliveries, j.visible_at, j.leased_at,
                   (date_part('epoch', now() - j.leased_at) * 1000)::bigint AS claimed_ms
            FROM holdfast.jobs j
            WHERE j.topic = t.topic AND j.tenant = one.tenant AND j.grp = one.grp AND j.grp IS NOT NULL
              AND j.original_topic IS NULL AND j.state IN ('ready', 'scheduled', 'leased')
            LIMIT 1
        ) x
    ) o ON true
    CROSS JOIN LATERAL (SELECT o.fails AND one.waited_ms >= t.goal_ms AS fails) f
    LEFT JOIN LATERAL (
        SELECT count(*) AS behind FROM (
            SELECT 1 FROM holdfast.jobs j
            WHERE o.stuck_ms IS NOT NULL AND j.topic = t.topic AND j.tenant = one.tenant AND j.grp = one.grp
              AND j.state = 'blocked' LIMIT $6::integer
        ) y
    ) b ON true
) g

-- name: survey
-- What the metrics say of queues besides their depths.
--   $1  topics
--   $2  oids of their sequences
--   $3  their ids
--   $4  their dead-letter topics, or NULL
--   $5  most jobs to read until the first live one
--   $6  most dead letters to count
-- One row per queue: topic; head_seq, 0 for none; earliest_seq, NULL if none of the jobs read is live; failed, jobs
-- that stayed in it; letters, jobs from it in its dead-letter topic, among those read. Deleted topics are left out.
-- Indexes: primary key, primary key of tallies, jobs_failures.
SELECT t.topic, coalesce(pg_sequence_last_value(t.sequence::regclass), 0) AS head_seq, first.seq AS earliest_seq,
       stored.failed, sent.letters
FROM unnest($1::text[], $2::oid[], $3::integer[], $4::text[]) AS t(topic, sequence, topic_id, dead_letter)
LEFT JOIN LATERAL (
    SELECT x.seq FROM (
        SELECT j.seq, j.state::text NOT IN ('failed', 'expired')
                      AND (j.expires_at IS NULL OR j.expires_at > now()
                           OR (j.state::text = 'leased' AND j.visible_at >= now())) AS live
        FROM holdfast.jobs j WHERE j.topic = t.topic ORDER BY j.seq LIMIT $5::integer
    ) x WHERE x.live ORDER BY x.seq LIMIT 1
) first ON true
CROSS JOIN LATERAL (
    SELECT coalesce(sum(y.failed), 0)::bigint AS failed FROM holdfast.tallies y WHERE y.topic_id = t.topic_id
) stored
CROSS JOIN LATERAL (
    SELECT count(*) AS letters FROM (
        SELECT FROM (SELECT t.dead_letter AS topic, t.topic AS source) l JOIN holdfast.jobs j ON true
        WHERE j.topic = l.topic AND j.failed_in = l.source AND j.cluster IS NOT NULL
        ORDER BY j.cluster LIMIT $6::integer
    ) x
) sent
WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = t.sequence)

-- name: total_bytes
-- The bytes that all topics hold: payloads of unfinished jobs, data and metadata of logs.   No parameters.
-- Answers one row. Reads all tallies and all states of logs, a few rows per topic.
SELECT ((SELECT coalesce(sum(t.bytes), 0) FROM holdfast.tallies t)
        + (SELECT coalesce(sum(l.bytes), 0) FROM holdfast.log_state l))::bigint AS bytes

-- name: unarchived
-- How many past days have no files yet, by table.   One row each: of_table, days (also 0).
SELECT d.of_table, count(*) FILTER (WHERE d.over AND NOT d.archived) AS days
FROM holdfast.day_partitions d GROUP BY d.of_table

-- name: waiting_groups
-- Groups of a topic in which jobs wait behind the first one.
--   $1  topic
--   $2  most groups to read, by tenant and name
--   $3  most groups to return
--   $4  most jobs of a group to count
--   $5  how long jobs may wait, in ms; 0 for ever
-- One row per group: tenant; grp; behind, how many jobs wait; for the first job as group_head: seq (NULL: the next one
-- is just being let through), state, node, until_ms.
-- Stuck groups come first, the one whose head was claimed first before others, then groups whose head failed twice or
-- more, then groups with the most jobs.
-- The first job of each group is found with one index read, wherever the previous group ends.
-- Indexes: jobs_blocked, jobs_group_out.
WITH RECURSIVE g AS (
    (SELECT j.tenant, j.grp FROM holdfast.jobs j WHERE j.topic = $1 AND j.state = 'blocked'
     ORDER BY j.tenant, j.grp LIMIT 1)
    UNION ALL
    SELECT n.tenant, n.grp FROM g CROSS JOIN LATERAL (
        SELECT j.tenant, j.grp FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.state = 'blocked' AND (j.tenant, j.grp) > (g.tenant, g.grp)
        ORDER BY j.tenant, j.grp LIMIT 1
    ) n
)
SELECT one.tenant, one.grp, b.behind, o.seq, o.state, o.node, o.until_ms
FROM (SELECT g.tenant, g.grp FROM g LIMIT $2::integer) one
CROSS JOIN LATERAL (
    SELECT count(*) AS behind FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.tenant = one.tenant AND j.grp = one.grp AND j.state = 'blocked' LIMIT $4::integer
    ) x
) b
LEFT JOIN LATERAL (
    SELECT j.seq, j.node, (date_part('epoch', j.visible_at) * 1000)::bigint AS until_ms,
           holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state,
           CASE WHEN $5::bigint > 0 AND j.deliveries > 0 AND j.visible_at >= now()
                     AND j.leased_at <= now() - $5::bigint * interval '1 ms' THEN j.leased_at END AS stuck_at,
           j.deliveries - (j.state = 'leased' AND j.visible_at >= now())::integer >= 2 AS fails
    FROM holdfast.jobs j
    WHERE j.topic = $1 AND j.tenant = one.tenant AND j.grp = one.grp AND j.original_topic IS NULL
      AND j.state IN ('ready', 'scheduled', 'leased')
    LIMIT 1
) o ON true
ORDER BY o.stuck_at, o.fails IS TRUE DESC, b.behind DESC, one.tenant, one.grp LIMIT $3::integer

-- name: writers
-- Which transactions may still commit jobs or tallies?   $1 oids of sequences
-- One row: the virtual ids of transactions with a lock for writing jobs or tallies or drawing seqs. A fold writes only
-- tallies. The locks are held until the end of the transaction, and released after its changes are visible. A prepared
-- transaction keeps them, with its virtual id, and has no pid.
SELECT array(
    SELECT DISTINCT l.virtualtransaction FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
      AND (l.relation IN ('holdfast.jobs'::regclass, 'holdfast.tallies'::regclass) OR l.relation = ANY ($1::oid[]))
      AND l.pid IS DISTINCT FROM pg_backend_pid()
) AS writers
