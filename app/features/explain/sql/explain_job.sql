-- What there is to say about a job at this moment.   $1 topic  $2 topic id  $3 seq
--   $4 whether deliveries run out here  $5 the topic's max_deliveries, 0 for no end
-- A row, or none if it is not there: its state by the database's clock (`leased` is a good lease; what has outlived its time
-- is expired, marked or not; what was cancelled is so once its lease has ended), whether it stands in the due part of its
-- lane, whether its last delivery is over, and whether it was cancelled. Times in ms since 1970; `place` is its position,
-- or its time in µs.   The function: functions/state_now.sql. Index: primary key.
SELECT holdfast.state_now(j.state, j.visible_at, j.expires_at, j.cancelled_at) AS state,
       j.state::text IN ('leased', 'scheduled') AS due, j.tenant, j.grp, j.priority,
       CASE WHEN j.state::text = 'ready' THEN j.position
            ELSE (date_part('epoch', j.visible_at) * 1000000)::bigint END AS place,
       j.deliveries, j.crashes, coalesce(j.max_deliveries, $5::integer) AS max_deliveries,
       $4::boolean AND coalesce(j.max_deliveries, $5::integer) > 0
           AND j.deliveries >= coalesce(j.max_deliveries, $5::integer) AS spent,
       j.cancelled_at IS NOT NULL AS cancelled,
       j.node, j.last_error, j.original_topic, j.original_seq, j.original_deliveries,
       CASE WHEN j.progress_lease = j.lease_id THEN j.progress END AS percent, j.progress_note AS note,
       (date_part('epoch', j.progress_at) * 1000)::bigint AS progress_ms,
       (date_part('epoch', now()) * 1000)::bigint AS now_ms,
       (date_part('epoch', j.created_at) * 1000)::bigint AS created_ms,
       (date_part('epoch', j.updated_at) * 1000)::bigint AS updated_ms,
       (date_part('epoch', j.visible_at) * 1000)::bigint AS visible_ms,
       (date_part('epoch', j.leased_at) * 1000)::bigint AS leased_ms,
       (date_part('epoch', j.expires_at) * 1000)::bigint AS expires_ms
FROM holdfast.jobs j WHERE j.topic = $1 AND j.topic_id = $2::integer AND j.seq = $3::bigint
