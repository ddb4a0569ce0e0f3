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
