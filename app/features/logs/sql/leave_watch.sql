-- A connection has ended: save how far its watch was told, and begin its life without one.
--   $1 wid  $2 the connection  $3 places  $4 the life in ms
-- Answers the wid; no row: another connection holds the watch by now, or it is gone.   Index: primary key.
UPDATE holdfast.watches w SET holder = NULL, places = $3::json, expires_at = now() + $4::bigint * interval '1 ms'
WHERE w.wid = $1 AND w.holder = $2::uuid
RETURNING w.wid
