-- Count what became of each topic's jobs in the minutes from $1 on, up to and without $2: whole minutes.
-- Answers how many rows of topic_stats that made; what they were before is written over. Reads all topics' events of
-- that time once.   The function: functions/stats.sql.   Index: lease_events_read.
SELECT holdfast.fill_topic_stats($1::timestamptz, $2::timestamptz)
