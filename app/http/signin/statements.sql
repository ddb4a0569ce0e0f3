-- name: count
-- How many keys and users there are, dead ones included, and how many keys and how many users are live.
-- Reads both tables whole, which are small.
SELECT k.kept + u.kept AS kept, k.live, u.live AS users
FROM (
    SELECT count(*) AS kept,
        count(*) FILTER (WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())) AS live
    FROM holdfast.api_keys k
) k, (
    SELECT count(*) AS kept, count(*) FILTER (WHERE u.deleted_at IS NULL) AS live FROM holdfast.users u
) u

-- name: count_tries
-- Count a try to sign in.   $1 a name at an address, $2 the address, digests  $3 how long tries are counted
-- $4 most tries of the name: one beyond them is not the address's any more, however many processes ask.
-- Answers a row for each that it counted: who, and how many tries there are in the time that began with the first of
-- them. The name's row is locked before the address's.   Index: primary key.
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
-- Take a grant back.   $1 id  $2 the user's id
-- Answers one row: the grant. No row: this user has no such grant.   Index: primary key.
DELETE FROM holdfast.grants g WHERE g.id = $1 AND g.user_id = $2
RETURNING g.id::text AS id, g.user_id::text AS user_id, g.action, g.topic_pattern, g.hides_payloads, g.created_at

-- name: delete_user
-- Delete a user, with all that was granted to them, and their saved views; the row stays, without the password.   $1 id
-- Index: primary key, and that of the grants by user.
WITH gone AS (DELETE FROM holdfast.grants g WHERE g.user_id = $1),
     views AS (DELETE FROM holdfast.saved_views v WHERE v.owner = $1::uuid::text)
UPDATE holdfast.users u SET deleted_at = clock_timestamp(), password_hash = NULL
WHERE u.id = $1 AND u.deleted_at IS NULL

-- name: find_user
-- A user who wants to sign in.   $1 name   Answers id, epoch and the password's hash. No row: there is no such user.
-- Index: users_username.
SELECT u.id::text AS id, u.epoch, u.password_hash FROM holdfast.users u WHERE u.username = $1 AND u.deleted_at IS NULL

-- name: get
-- A key without its digests.   $1 id   No row: there never was one.   Index: primary key.
SELECT k.id, k.name, k.scopes, k.prefixes, k.tenant, k.hides_payloads, k.created_at, k.created_by, k.rotated_at, k.expires_at, k.revoked_at,
    CASE WHEN k.old_until > now() THEN k.old_until END AS old_until,
    CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired' ELSE 'live' END AS state
FROM holdfast.api_keys k WHERE k.id = $1

-- name: get_user
-- A user without the password's hash.   $1 id
-- No row: there is no such user, or they were deleted.   Index: primary key.
SELECT u.id::text AS id, u.username, u.is_admin, u.created_at, u.updated_at
FROM holdfast.users u WHERE u.id = $1 AND u.deleted_at IS NULL

-- name: grants
-- What is granted to a user, by action and pattern.   $1 the user's id   Index: grants by user, action and pattern.
SELECT g.id::text AS id, g.user_id::text AS user_id, g.action, g.topic_pattern, g.hides_payloads, g.created_at
FROM holdfast.grants g WHERE g.user_id = $1 ORDER BY g.action, g.topic_pattern

-- name: insert
-- Keep a new key.   $1 id  $2 name  $3 digest of its secret  $4 scopes  $5 prefixes  $6 ms until it expires, or NULL
--   $7 who made it  $8 its tenant, or NULL  $9 whether it hides payloads
INSERT INTO holdfast.api_keys (id, name, digest, scopes, prefixes, expires_at, created_by, tenant, hides_payloads)
VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6::bigint * interval '1 millisecond', $7, $8, $9)

-- name: insert_grant
-- Grant something to a user.   $1 id  $2 the user's id  $3 action  $4 pattern of topics  $5 who grants it
--   $6 whether it hides payloads
-- Answers one row. No row: it was granted before.   Index: grants by user, action and pattern.
INSERT INTO holdfast.grants (id, user_id, action, topic_pattern, created_by, hides_payloads)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (user_id, action, topic_pattern) DO NOTHING
RETURNING id::text AS id, user_id::text AS user_id, action, topic_pattern, hides_payloads, created_at

-- name: insert_user
-- Keep a new user.   $1 id  $2 name  $3 the password's hash  $4 whether they are an admin  $5 who made them
-- Answers one row: the id. No row: the name is taken.   Index: users_username.
INSERT INTO holdfast.users (id, username, password_hash, is_admin, created_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (username) WHERE deleted_at IS NULL DO NOTHING
RETURNING id

-- name: keep_secret
-- Keep a secret for tokens, unless another process was first.   $1 the secret
INSERT INTO holdfast.token_secret (secret) VALUES ($1) ON CONFLICT (singleton) DO NOTHING

-- name: live
-- Every secret that is good now, those before a rotation included while their grace lasts.   $1 most rows
-- Answers one row a secret: the key's id and name, the digest, scopes, prefixes, tenant, whether it hides payloads, and in how
-- many seconds it ends, NULL for never.   Reads the whole table, which is small.
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
-- Let one key be made at a time, to the end of the transaction: the first one is special, and their number is bounded.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast.api_keys', 0))

-- name: lock_user
-- Hold a user, to the end of the transaction: a change of them waits for another one.   $1 id
-- No row: there is no such user, or they were deleted.   Index: primary key.
SELECT u.id::text AS id, u.username, u.is_admin, u.created_at, u.updated_at
FROM holdfast.users u WHERE u.id = $1 AND u.deleted_at IS NULL FOR UPDATE

-- name: page
-- A page of keys without their digests, the newest first.   $1 made before this time, or at it with  $2 an id below this
--   $3 most rows  $4 only keys with no other scopes than these
--   $5 only keys whose every prefix starts with one of these; empty for all  $6 those that see payloads, too
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
-- A page of users by name, without hashes.   $1 names after this one  $2 most rows   Index: users_username.
SELECT u.id::text AS id, u.username, u.is_admin, u.created_at, u.updated_at
FROM holdfast.users u WHERE u.username > $1 AND u.deleted_at IS NULL
ORDER BY u.username LIMIT $2

-- name: people
-- Every user, and what is granted to them.   $1 most rows
-- Answers one row a user: id, name, whether they are an admin, the epoch of their password, and arrays that belong
-- together: actions, patterns, and whether these grants hide payloads.   Reads both tables whole, which are small.
SELECT u.id::text AS id, u.username, u.is_admin, u.epoch,
    coalesce(array_agg(g.action ORDER BY g.id) FILTER (WHERE g.id IS NOT NULL), '{}') AS actions,
    coalesce(array_agg(g.topic_pattern ORDER BY g.id) FILTER (WHERE g.id IS NOT NULL), '{}') AS patterns,
    coalesce(array_agg(g.hides_payloads ORDER BY g.id) FILTER (WHERE g.id IS NOT NULL), '{}') AS hides
FROM holdfast.users u LEFT JOIN holdfast.grants g ON g.user_id = u.id
WHERE u.deleted_at IS NULL
GROUP BY u.id
LIMIT $1

-- name: revoke
-- Revoke a key, for good.   $1 id
-- Answers one row: its id. No row: there is no such key, or it was revoked before.   Index: primary key.
UPDATE holdfast.api_keys k SET revoked_at = clock_timestamp() WHERE k.id = $1 AND k.revoked_at IS NULL RETURNING k.id

-- name: rotate
-- Give a live key another secret.   $1 id  $2 digest of the new one  $3 ms for which the one before stays good; 0: none
-- Answers one row: its id. No row: there is no such key, or it is not live.   Index: primary key.
UPDATE holdfast.api_keys k
SET digest = $2, rotated_at = clock_timestamp(),
    old_digest = CASE WHEN $3::bigint > 0 THEN k.digest END,
    old_until = CASE WHEN $3::bigint > 0 THEN clock_timestamp() + $3::bigint * interval '1 millisecond' END
WHERE k.id = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
RETURNING k.id

-- name: secret
-- The secret that signs tokens, where none is set.   No row: none was needed yet.
SELECT s.secret FROM holdfast.token_secret s

-- name: sweep_tries
-- Forget tries to sign in whose time is over, and beyond so many rows those that are over first.
--   $1 most rows that stay  $2 most rows of this call   Answers one row: how many.   Index: sign_in_tries_until.
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
-- Take a try to sign in back.   $1 those for whom it was counted, digests: a name at an address, and the address
-- $2 whether the first of them begins anew.   Index: primary key.
-- Changes by key, not by ctid: who waited for another's count has to change the row as that one left it.
WITH picked AS MATERIALIZED (
    SELECT t.who, k.n FROM unnest($1::bytea[]) WITH ORDINALITY AS k(who, n)
    JOIN holdfast.sign_in_tries t ON t.who = k.who ORDER BY k.n FOR UPDATE OF t
)
UPDATE holdfast.sign_in_tries t SET tries = CASE WHEN $2 AND p.n = 1 THEN 0 ELSE greatest(t.tries - 1, 0) END
FROM picked p WHERE t.who = p.who

-- name: update_user
-- Change a user; NULL leaves a column as it is.   $1 id  $2 name  $3 hash of another password, which ends all tokens
--   $4 whether they are an admin   Raises unique_violation for a name that is taken.   Index: primary key.
UPDATE holdfast.users u
SET username = coalesce($2, u.username), is_admin = coalesce($4, u.is_admin),
    password_hash = coalesce($3, u.password_hash), epoch = u.epoch + ($3::text IS NOT NULL)::integer,
    updated_at = clock_timestamp()
WHERE u.id = $1 AND u.deleted_at IS NULL
