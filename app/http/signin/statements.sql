-- name: count
-- Counts all keys and users, including dead ones (kept), live keys and live users. Reads two small tables whole.
SELECT k.kept + u.kept AS kept, k.live, u.live AS users
FROM (
    SELECT count(*) AS kept,
        count(*) FILTER (WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())) AS live
    FROM holdfast.api_keys k
) k, (
    SELECT count(*) AS kept, count(*) FILTER (WHERE u.deleted_at IS NULL) AS live FROM holdfast.users u
) u

-- name: count_tries
-- Counts an attempt to sign in.
--   $1  digest of the name at an address
--   $2  digest of the address
--   $3  how long attempts are counted
--   $4  limit for the name; attempts beyond it are not counted for the address
-- Returns a row for each count: its digest, the attempts since the first one, and the seconds until they expire.
-- Locks the name's row before the address's. Index: primary key.
WITH name AS (
    INSERT INTO holdfast.sign_in_tries AS t (who, tries, until) VALUES ($1::bytea, 1, now() + $3::interval)
    ON CONFLICT (who) DO UPDATE
    SET tries = CASE WHEN t.until <= now() THEN 1 ELSE least(t.tries, 1000000) + 1 END,
        until = CASE WHEN t.until <= now() THEN excluded.until ELSE t.until END
    RETURNING t.who, t.tries, t.until
), address AS (
    INSERT INTO holdfast.sign_in_tries AS t (who, tries, until)
    SELECT $2::bytea, 1, now() + $3::interval FROM name n WHERE n.tries <= $4
    ON CONFLICT (who) DO UPDATE
    SET tries = CASE WHEN t.until <= now() THEN 1 ELSE least(t.tries, 1000000) + 1 END,
        until = CASE WHEN t.until <= now() THEN excluded.until ELSE t.until END
    RETURNING t.who, t.tries, t.until
)
SELECT x.who, x.tries, greatest(date_part('epoch', x.until - now()), 0) AS left_s
FROM (SELECT * FROM name UNION ALL SELECT * FROM address) x

-- name: delete_grant
-- Deletes a grant.   $1 id  $2 user's id
-- Returns the grant; no row if the user has no such grant. Index: primary key.
DELETE FROM holdfast.grants g WHERE g.id = $1 AND g.user_id = $2
RETURNING g.id::text AS id, g.user_id::text AS user_id, g.action, g.topic_pattern, g.hides_payloads, g.created_at

-- name: delete_user
-- Deletes a user with their grants and saved views. The user's row stays, without the password.   $1 id
-- Index: primary key, grants by user.
WITH gone AS (DELETE FROM holdfast.grants g WHERE g.user_id = $1),
     views AS (DELETE FROM holdfast.saved_views v WHERE v.owner = $1::uuid::text)
UPDATE holdfast.users u SET deleted_at = clock_timestamp(), password_hash = NULL
WHERE u.id = $1 AND u.deleted_at IS NULL

-- name: find_user
-- A user's id, epoch and password hash, for sign-in; no row if there is no such user.   $1 name
-- Index: users_username.
SELECT u.id::text AS id, u.epoch, u.password_hash FROM holdfast.users u WHERE u.username = $1 AND u.deleted_at IS NULL

-- name: get
-- A key without its digests; no row if it never existed.   $1 id   Index: primary key.
SELECT k.id, k.name, k.scopes, k.prefixes, k.tenant, k.hides_payloads, k.created_at, k.created_by, k.rotated_at, k.expires_at, k.revoked_at,
    CASE WHEN k.old_until > now() THEN k.old_until END AS old_until,
    CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' ELSE 'live' END AS state
FROM holdfast.api_keys k WHERE k.id = $1

-- name: get_user
-- A user without the password hash; no row if there is none, or they were deleted.   $1 id   Index: primary key.
SELECT u.id::text AS id, u.username, u.is_admin, u.created_at, u.updated_at
FROM holdfast.users u WHERE u.id = $1 AND u.deleted_at IS NULL

-- name: grants
-- A user's grants, by action and pattern.   $1 user's id   Index: grants by user, action and pattern.
SELECT g.id::text AS id, g.user_id::text AS user_id, g.action, g.topic_pattern, g.hides_payloads, g.created_at
FROM holdfast.grants g WHERE g.user_id = $1 ORDER BY g.action, g.topic_pattern

-- name: insert
-- Inserts a key.
--   $1  id
--   $2  name
--   $3  digest of its secret
--   $4  scopes
--   $5  prefixes
--   $6  ms until it expires, or NULL
--   $7  author
--   $8  tenant, or NULL
--   $9  whether it hides payloads
INSERT INTO holdfast.api_keys (id, name, digest, scopes, prefixes, expires_at, created_by, tenant, hides_payloads)
VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6::bigint * interval '1 millisecond', $7, $8, $9)

-- name: insert_grant
-- Inserts a grant.
--   $1  id
--   $2  user's id
--   $3  action
--   $4  pattern of topics
--   $5  author
--   $6  whether it hides payloads
-- Returns the grant; no row if it existed. Index: grants by user, action and pattern.
INSERT INTO holdfast.grants (id, user_id, action, topic_pattern, created_by, hides_payloads)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (user_id, action, topic_pattern) DO NOTHING
RETURNING id::text AS id, user_id::text AS user_id, action, topic_pattern, hides_payloads, created_at

-- name: insert_user
-- Inserts a user.
--   $1  id
--   $2  name
--   $3  password hash
--   $4  whether they are an admin
--   $5  author
-- Returns the id; no row if the name is taken. Index: users_username.
INSERT INTO holdfast.users (id, username, password_hash, is_admin, created_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (username) WHERE deleted_at IS NULL DO NOTHING
RETURNING id

-- name: keep_secret
-- Stores the secret for tokens, unless another process was first.   $1 secret
INSERT INTO holdfast.token_secret (secret) VALUES ($1) ON CONFLICT (singleton) DO NOTHING

-- name: live
-- Every valid secret, including old ones within their grace. `seconds`: until it ends, NULL for never.   $1 most rows
-- Reads a small table whole.
SELECT s.id, s.name, s.digest, s.scopes, s.prefixes, s.tenant, s.hides_payloads,
    extract(epoch FROM s.ends - clock_timestamp())::double precision AS seconds
FROM (
    SELECT k.id, k.name, k.digest, k.scopes, k.prefixes, k.tenant, k.hides_payloads, k.expires_at AS ends
    FROM holdfast.api_keys k WHERE k.revoked_at IS NULL
    UNION ALL
    SELECT k.id, k.name, k.old_digest, k.scopes, k.prefixes, k.tenant, k.hides_payloads, least(k.old_until, k.expires_at)
    FROM holdfast.api_keys k WHERE k.revoked_at IS NULL AND k.old_until IS NOT NULL
) s
WHERE s.ends IS NULL OR s.ends > now()
LIMIT $1

-- name: lock
-- Serializes the making of keys and users until the end of the transaction: the first is special, and there is a limit.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.api_keys', 0))

-- name: lock_user
-- Locks a user until the end of the transaction; no row if there is none, or they were deleted.   $1 id
-- Index: primary key.
SELECT u.id::text AS id, u.username, u.is_admin, u.created_at, u.updated_at
FROM holdfast.users u WHERE u.id = $1 AND u.deleted_at IS NULL FOR UPDATE

-- name: page
-- A page of keys without their digests, newest first.
--   $1  created before this time, or at this time with
--   $2  an id below this
--   $3  most rows
--   $4  only keys with no other scopes than these
--   $5  only keys all of whose prefixes start with one of these; empty for all
--   $6  whether to include keys that see payloads
-- Index: api_keys_page, from its end.
SELECT k.id, k.name, k.scopes, k.prefixes, k.tenant, k.hides_payloads, k.created_at, k.created_by, k.rotated_at, k.expires_at, k.revoked_at,
    CASE WHEN k.old_until > now() THEN k.old_until END AS old_until,
    CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' ELSE 'live' END AS state
FROM holdfast.api_keys k
WHERE (k.created_at, k.id) < ($1::timestamptz, $2::text) AND k.scopes <@ $4::text[] AND ($6 OR k.hides_payloads)
  AND ($5::text[] = '{}' OR (k.prefixes <> '{}' AND NOT EXISTS (
       SELECT 1 FROM unnest(k.prefixes) AS own
       WHERE NOT EXISTS (SELECT 1 FROM unnest($5::text[]) AS allowed WHERE starts_with(own, allowed)))))
ORDER BY k.created_at DESC, k.id DESC LIMIT $3

-- name: page_users
-- A page of users by name, without hashes.   $1 the name before the page  $2 most rows   Index: users_username.
SELECT u.id::text AS id, u.username, u.is_admin, u.created_at, u.updated_at
FROM holdfast.users u WHERE u.username > $1 AND u.deleted_at IS NULL
ORDER BY u.username LIMIT $2

-- name: people
-- Every user with their grants, in parallel arrays: actions, patterns, and whether they hide payloads.   $1 most rows
-- Reads two small tables whole.
SELECT u.id::text AS id, u.username, u.is_admin, u.epoch,
    coalesce(array_agg(g.action ORDER BY g.id) FILTER (WHERE g.id IS NOT NULL), '{}') AS actions,
    coalesce(array_agg(g.topic_pattern ORDER BY g.id) FILTER (WHERE g.id IS NOT NULL), '{}') AS patterns,
    coalesce(array_agg(g.hides_payloads ORDER BY g.id) FILTER (WHERE g.id IS NOT NULL), '{}') AS hides
FROM holdfast.users u LEFT JOIN holdfast.grants g ON g.user_id = u.id
WHERE u.deleted_at IS NULL
GROUP BY u.id
LIMIT $1

-- name: revoke
-- Revokes a key. Returns its id; no row if there is none, or it was revoked before.   $1 id   Index: primary key.
UPDATE holdfast.api_keys k SET revoked_at = clock_timestamp() WHERE k.id = $1 AND k.revoked_at IS NULL RETURNING k.id

-- name: rotate
-- Gives a live key a new secret.
--   $1  id
--   $2  digest of the new secret
--   $3  ms for which the old secret stays valid, 0 for not at all
-- Returns its id; no row if there is no live key with this id. Index: primary key.
UPDATE holdfast.api_keys k
SET digest = $2, rotated_at = clock_timestamp(),
    old_digest = CASE WHEN $3::bigint > 0 THEN k.digest END,
    old_until = CASE WHEN $3::bigint > 0 THEN clock_timestamp() + $3::bigint * interval '1 millisecond' END
WHERE k.id = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
RETURNING k.id

-- name: secret
-- The stored secret for tokens; no row if none was needed yet.
SELECT s.secret FROM holdfast.token_secret s

-- name: sweep_tries
-- Deletes expired counts of attempts to sign in; beyond $1 rows also the earliest to expire. Returns how many.
--   $1 rows to keep  $2 most rows to delete   Index: sign_in_tries_until.
WITH picked AS MATERIALIZED (
    SELECT t.ctid AS tid FROM holdfast.sign_in_tries t
    WHERE t.until <= greatest(now(), (
        SELECT o.until FROM holdfast.sign_in_tries o ORDER BY o.until DESC OFFSET $1::integer LIMIT 1))
    ORDER BY t.until LIMIT $2::integer FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.sign_in_tries d USING picked p WHERE d.ctid = p.tid RETURNING 1
)
SELECT count(*) FROM gone

-- name: uncount_tries
-- Uncounts an attempt to sign in.
--   $1 digests of the name at an address and of the address  $2 whether to reset the name's count to 0
-- Updates by key, not by ctid: after a wait for a lock it must change the newest row. Index: primary key.
WITH picked AS MATERIALIZED (
    SELECT t.who, k.n FROM unnest($1::bytea[]) WITH ORDINALITY AS k(who, n)
    JOIN holdfast.sign_in_tries t ON t.who = k.who ORDER BY k.n FOR UPDATE OF t
)
UPDATE holdfast.sign_in_tries t SET tries = CASE WHEN $2 AND p.n = 1 THEN 0 ELSE greatest(t.tries - 1, 0) END
FROM picked p WHERE t.who = p.who

-- name: update_user
-- Changes a user; NULL leaves a column unchanged. A new password ends all tokens.
--   $1  id
--   $2  name
--   $3  password hash
--   $4  whether they are an admin
-- Raises unique_violation if the name is taken. Index: primary key.
UPDATE holdfast.users u
SET username = coalesce($2, u.username), is_admin = coalesce($4, u.is_admin),
    password_hash = coalesce($3, u.password_hash), epoch = u.epoch + ($3::text IS NOT NULL)::integer,
    updated_at = clock_timestamp()
WHERE u.id = $1 AND u.deleted_at IS NULL
