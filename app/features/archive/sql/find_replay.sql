-- How far a replay has come.   $1 topic  $2 topic id  $3 from which time it was asked for, or NULL  $4 its end
-- Answers one row: the place it has come to, enqueued and skipped so far, and whether it is done. No row: another has begun since.
-- Index: primary key.
SELECT r.after_time, r.after_seq, r.enqueued, r.skipped, r.done FROM holdfast.replays r
WHERE r.topic = $1 AND r.topic_id = $2::integer AND r.asked_from = coalesce($3::timestamptz, '-infinity')
  AND r.until_time = $4::timestamptz
