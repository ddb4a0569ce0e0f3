-- Heads of groups that have failed for longer than jobs may wait, by the ledger.
--   $1 topics  $2 their ids  $3 how long their jobs may wait, in ms  $4 tenants  $5 groups  $6 the heads' seqs  $7 since when
--   the first job behind each has waited  $8 till when it was leased or delayed; one each per head
--   $9 most events of each to read  $10 most jobs of a group to count
-- One row a head that has failed for so long: topic, failing_ms till $8, and behind, how many jobs wait in its group.
-- It fails since it was claimed first after it was enqueued, requeued or given back unused, as far as that lies within $7.
-- Before that nothing is read: how long others have waited behind it is what counts.   Indexes: lease_events_read, jobs_blocked.
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
