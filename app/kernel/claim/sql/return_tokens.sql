-- Put tokens back that were taken and not spent, up to what a bucket holds.
--   $1 topic id  $2 how many  $3 tokens that it earns a second
-- Answers nothing.   Index: primary key.
UPDATE holdfast.buckets SET tokens = least(tokens + $2::integer, $3::double precision)
WHERE topic_id = $1
