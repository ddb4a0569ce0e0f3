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
