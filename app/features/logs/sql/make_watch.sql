-- Keep a new watch.   $1 wid  $2 owner  $3 options  $4 places  $5 its life without a connection, in ms
--   $6 most watches that may be kept
-- Answers the wid; no row: there are too many.   The count is of an index, and ends at $6.
INSERT INTO holdfast.watches (wid, owner, options, places, expires_at)
SELECT $1, $2, $3::json, $4::json, now() + $5::bigint * interval '1 ms'
WHERE (SELECT count(*) FROM (SELECT 1 FROM holdfast.watches LIMIT $6::bigint) kept) < $6::bigint
RETURNING wid
