-- name: find_watch
-- Whether a watch exists, for any owner.   $1 wid   One row if it does.   Index: primary key.
SELECT w.wid FROM holdfast.watches w WHERE w.wid = $1 AND w.expires_at > now()

-- name: keep_watches
-- Save the places of watches, and extend their lives. Index: primary key. Locks in the order of wids.
--   $1  wids
--   $2  connections, one per watch
--   $3  places, one per watch; NULL: unchanged
--   $4  life without a connection, in ms
-- Returns the wids that these connections still hold. Other watches were taken over or deleted, and are not changed.
-- expires_at is only written after a fifth of the life, so that most updates change no index.
WITH given AS MATERIALIZED (
    SELECT k.wid, k.holder, k.places FROM unnest($1::text[], $2::uuid[], $3::text[]) AS k(wid, holder, places)
), picked AS MATERIALIZED (
    SELECT w.ctid AS tid, w.wid, k.places
    FROM given k JOIN holdfast.watches w ON w.wid = k.wid AND w.holder = k.holder
    WHERE k.places IS NOT NULL OR w.expires_at < now() + $4::bigint * interval '0.8 ms'
    ORDER BY w.wid FOR UPDATE OF w
), saved AS (
    UPDATE holdfast.watches w
    SET places = coalesce(p.places::json, w.places),
        expires_at = CASE WHEN w.expires_at < now() + $4::bigint * interval '0.8 ms'
                          THEN now() + $4::bigint * interval '1 ms' ELSE w.expires_at END
    FROM picked p WHERE w.ctid = p.tid
)
SELECT w.wid FROM given k JOIN holdfast.watches w ON w.wid = k.wid AND w.holder = k.holder

-- name: leave_watch
-- Save a watch's places at the end of its connection, and release it. Index: primary key.
--   $1  wid
--   $2  connection
--   $3  places
--   $4  life without a connection, in ms
-- Returns the wid. No row: another connection holds the watch by now, or it was deleted.
UPDATE holdfast.watches w SET holder = NULL, places = $3::json, expires_at = now() + $4::bigint * interval '1 ms'
WHERE w.wid = $1 AND w.holder = $2::uuid
RETURNING w.wid

-- name: make_watch
-- Create a watch.
--   $1  wid
--   $2  owner
--   $3  options
--   $4  places
--   $5  life without a connection, in ms
--   $6  most watches
-- Returns the wid. No row: there are too many. Counting uses an index and stops at $6.
INSERT INTO holdfast.watches (wid, owner, options, places, expires_at)
SELECT $1, $2, $3::json, $4::json, now() + $5::bigint * interval '1 ms'
WHERE (SELECT count(*) FROM (SELECT 1 FROM holdfast.watches LIMIT $6::bigint) kept) < $6::bigint
RETURNING wid

-- name: sweep_watches
-- Delete expired watches.   $1 most watches   Returns how many.
-- Index: watches_expiring.
WITH picked AS MATERIALIZED (
    SELECT w.ctid AS tid FROM holdfast.watches w WHERE w.expires_at < now()
    ORDER BY w.expires_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.watches w USING picked p WHERE w.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: take_watch
-- Take a watch over for this connection. Index: primary key.
--   $1  wid
--   $2  owner
--   $3  connection
--   $4  life without a connection, in ms
-- Returns options and places. No row: the watch does not exist, has expired, or belongs to another owner.
UPDATE holdfast.watches w SET holder = $3::uuid, expires_at = now() + $4::bigint * interval '1 ms'
WHERE w.wid = $1 AND w.owner = $2 AND w.expires_at > now()
RETURNING w.options, w.places
