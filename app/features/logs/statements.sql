-- name: find_watch
-- Whether a watch is kept, whoever owns it.   $1 wid   One row: it is.   Index: primary key.
SELECT w.wid FROM holdfast.watches w WHERE w.wid = $1 AND w.expires_at > now()

-- name: keep_watches
-- Save how far watches were told, and that they are connected.
--   $1 wids  $2 the connections, one each  $3 places, one each; NULL: as they were
--   $4 their life without a connection, in ms
-- Answers the wids that these connections still hold. One that is left out was taken over, or is gone; its row was not
-- touched. expires_at is written when a fifth of the life has passed, so that most updates change no index.
-- Index: primary key. Locks in the order of wids.
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
-- A connection has ended: save how far its watch was told, and begin its life without one.
--   $1 wid  $2 the connection  $3 places  $4 the life in ms
-- Answers the wid; no row: another connection holds the watch by now, or it is gone.   Index: primary key.
UPDATE holdfast.watches w SET holder = NULL, places = $3::json, expires_at = now() + $4::bigint * interval '1 ms'
WHERE w.wid = $1 AND w.holder = $2::uuid
RETURNING w.wid

-- name: make_watch
-- Keep a new watch.   $1 wid  $2 owner  $3 options  $4 places  $5 its life without a connection, in ms
--   $6 most watches that may be kept
-- Answers the wid; no row: there are too many.   The count is of an index, and ends at $6.
INSERT INTO holdfast.watches (wid, owner, options, places, expires_at)
SELECT $1, $2, $3::json, $4::json, now() + $5::bigint * interval '1 ms'
WHERE (SELECT count(*) FROM (SELECT 1 FROM holdfast.watches LIMIT $6::bigint) kept) < $6::bigint
RETURNING wid

-- name: sweep_watches
-- Forget watches whose time has passed.   $1 most watches   Answers one row: how many.
-- Index: watches_expiring.
WITH picked AS MATERIALIZED (
    SELECT w.ctid AS tid FROM holdfast.watches w WHERE w.expires_at < now()
    ORDER BY w.expires_at LIMIT $1::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.watches w USING picked p WHERE w.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: take_watch
-- Tell a watch on this connection from now on, wherever it was told before.
--   $1 wid  $2 owner  $3 the connection  $4 its life without one, in ms
-- Answers options and places. No row: there is no such watch, it has expired, or it is somebody else's.
-- Index: primary key.
UPDATE holdfast.watches w SET holder = $3::uuid, expires_at = now() + $4::bigint * interval '1 ms'
WHERE w.wid = $1 AND w.owner = $2 AND w.expires_at > now()
RETURNING w.options, w.places
