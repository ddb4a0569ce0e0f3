-- Set new deadlines, counted from now, for leases that their holders still have. The lease id stays. Also stores
-- progress.
--   $1 to $4 as in ack
--   $5  lease length per seq in ms
--   $6  progress per seq in percent, or NULL to keep the last one; may be empty
--   $7  progress note per seq, or NULL; may be empty
-- Answers one row: `done` and `picked` as in ack; `deadlines` in ms since 1970, one per entry of `done`; `cancelled`,
-- the entries of `done` whose job was cancelled meanwhile.
-- Progress belongs to the lease. It is not shown once the job is leased again.
-- The lock mode lets a transaction that called holdfast.assert_lease keep its lock on the job.
-- Index: primary key (see ack).
WITH picked AS MATERIALIZED (
    SELECT r.ord, r.lease_ms, r.percent, r.note, x.tid
    FROM unnest($2::bigint[], $3::uuid[], $4::text[], $5::bigint[], $6::smallint[], $7::text[])
        WITH ORDINALITY AS r(seq, lease, node, lease_ms, percent, note, ord)
    CROSS JOIN LATERAL (
        SELECT ctid AS tid FROM holdfast.jobs j
        WHERE j.topic = $1 AND j.seq = r.seq AND j.state::text = 'leased' AND j.visible_at >= now()
          AND (r.lease IS NULL OR j.lease_id = r.lease) AND (r.node IS NULL OR j.node = r.node)
        FOR NO KEY UPDATE
    ) x
), done AS (
    UPDATE holdfast.jobs j
    SET visible_at = clock_timestamp() + p.lease_ms * interval '1 ms',
        progress = coalesce(p.percent, j.progress),
        progress_note = CASE WHEN p.percent IS NULL THEN j.progress_note ELSE p.note END,
        progress_at = CASE WHEN p.percent IS NULL THEN j.progress_at ELSE clock_timestamp() END,
        progress_lease = CASE WHEN p.percent IS NULL THEN j.progress_lease ELSE j.lease_id END
    FROM picked p WHERE j.ctid = p.tid
    RETURNING p.ord, j.topic_id, j.seq, j.deliveries, j.lease_id, j.node, j.visible_at,
              j.cancelled_at IS NOT NULL AS cancelled
), event AS (
    INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries, lease_id, node, until)
    SELECT $1, topic_id, seq, 'extended', deliveries, lease_id, node, visible_at FROM done
)
SELECT array(SELECT ord FROM done ORDER BY ord) AS done,
       array(SELECT (date_part('epoch', visible_at) * 1000)::bigint FROM done ORDER BY ord) AS deadlines,
       array(SELECT ord FROM done WHERE cancelled) AS cancelled, array(SELECT ord FROM picked) AS picked
