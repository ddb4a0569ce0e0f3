-- Advances time by $1 (an interval): moves all future times back by that.
-- A job that becomes due is due from now on, in the order of the original times, as if it had just been returned. The
-- service remembers up to which time it has delivered all jobs, so no job may become due before that. For the same reason
-- a job that is already due keeps its time.
-- The ledger, archive, statistics, audit trail, keys and users keep their times, because those are in the past. Schedules
-- keep theirs because they follow the wall clock.
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
