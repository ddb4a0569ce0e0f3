-- How far minutes are told, and how far they can be by now. Locks the row: whoever else fills skips.
-- Answers one row: `filled_to`; `closed_to`, before which nothing more can appear: up to the mark's minute, once every
-- transaction from before the mark has ended; and `guessed_to` and `guess_to`, from and up to where minutes are old enough
-- to be told as they are, if an older transaction is still open ($1, an interval, says how old).
-- A mark that is yet to come here is of the cluster that the database was dumped from: whoever it waits for has ended.
-- No row: another process is at it.   Index: none, it is one row.
WITH picked AS MATERIALIZED (
    SELECT p.filled_to, p.guessed_to, p.marked_at, p.mark FROM holdfast.topic_stats_progress p
    LIMIT 1 FOR UPDATE SKIP LOCKED
)
SELECT p.filled_to, greatest(p.guessed_to, p.filled_to) AS guessed_to,
       CASE WHEN pg_snapshot_xmin(pg_current_snapshot()) >= p.mark OR p.mark > pg_snapshot_xmax(pg_current_snapshot())
            THEN greatest(date_bin('1 minute', p.marked_at, 'epoch'), p.filled_to) END AS closed_to,
       date_bin('1 minute', clock_timestamp() - $1::interval, 'epoch') AS guess_to
FROM picked p
