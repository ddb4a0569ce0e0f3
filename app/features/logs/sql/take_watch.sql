-- Tell a watch on this connection from now on, wherever it was told before.
--   $1 wid  $2 owner  $3 the connection  $4 its life without one, in ms
-- Answers options and places. No row: there is no such watch, it has expired, or it is somebody else's.
-- Index: primary key.
UPDATE holdfast.watches w SET holder = $3::uuid, expires_at = now() + $4::bigint * interval '1 ms'
WHERE w.wid = $1 AND w.owner = $2 AND w.expires_at > now()
RETURNING w.options, w.places
