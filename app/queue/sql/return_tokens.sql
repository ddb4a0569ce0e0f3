-- Put tokens back that were taken and not spent, up to what a bucket holds.
--   $1 topic id  $2 how many  $3 tokens that it earns a second
-- Answers nothing. That some were left means that nobody wanted more.   Index: primary key.
UPDATE holdfast.buckets SET tokens = least(tokens + $2::integer, greatest(1, $3::double precision)), short = false
WHERE topic_id = $1
