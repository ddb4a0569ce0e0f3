-- Let the next job of groups through whose job that was out is gone.
--   $1 topic  $2 topic id  $3 oid of the topic's sequence  $4 most departures to see to
-- Answers one row: freed, how many departures were seen to; how many jobs became ready; how many scheduled, since they
-- have a delay. Waits for those who add to the same groups, up to their commits. A job that somebody has locked is left
-- for the next time. Raises when the topic was deleted meanwhile.
-- The function: functions/groups.sql. Indexes: primary keys of freed_groups and groups, jobs_blocked, jobs_group_out.
SELECT p.freed, p.ready, p.scheduled FROM holdfast.promote($1::text, $2::integer, $3::oid, $4::integer) p
