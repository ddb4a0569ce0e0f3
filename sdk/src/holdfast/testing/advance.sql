-- Let time go by: what is to happen at some time happens $1 (an interval) sooner.
-- A job whose time comes by this is due from now on, in the order of those times, as if it had been given back now: the
-- service remembers up to which time it has handed everything out, so nothing may come to be due before that. For the
-- same reason a job that is due already keeps its time.
-- The ledger, the archive, statistics, audit, keys and users keep their times, which say when something was; and so do
-- schedules, which follow the clock on the wall.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS at
), coming AS MATERIALIZED (
    SELECT j.topic, j.seq, row_number() OVER (ORDER BY j.visible_at) AS place
    FROM holdfast.jobs j, clock c
    WHERE j.state IN ('leased', 'scheduled') AND j.visible_at > c.at AND j.visible_at - $1::interval <= c.at
), jobs AS (
    UPDATE holdfast.jobs j
    SET visible_at = coalesce(
            (SELECT c.at + m.place * interval '1 microsecond' FROM coming m WHERE m.topic = j.topic AND m.seq = j.seq),
            CASE WHEN j.state IN ('leased', 'scheduled') AND j.visible_at <= c.at THEN j.visible_at
                 ELSE j.visible_at - $1 END),
        created_at = j.created_at - $1, updated_at = j.updated_at - $1, expires_at = j.expires_at - $1,
        leased_at = j.leased_at - $1, failed_at = j.failed_at - $1, cancelled_at = j.cancelled_at - $1,
        progress_at = j.progress_at - $1, dlq_moved_at = j.dlq_moved_at - $1
    FROM clock c
), dedupe AS (
    UPDATE holdfast.dedupe SET expires_at = expires_at - $1
), idempotency AS (
    UPDATE holdfast.idempotency SET expires_at = expires_at - $1
), results AS (
    UPDATE holdfast.results SET expires_at = expires_at - $1 WHERE expires_at IS NOT NULL
), buckets AS (
    UPDATE holdfast.buckets SET at = at - $1
), records AS (
    UPDATE holdfast.records SET created_at = created_at - $1
), logs AS (
    UPDATE holdfast.log_state SET written_at = written_at - $1
), watches AS (
    UPDATE holdfast.watches SET expires_at = expires_at - $1
)
UPDATE holdfast.user_events SET created_at = created_at - $1
