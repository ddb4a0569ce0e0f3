-- The id of a job in the messages dialect: says where the job is. app/http/messages/ids.py is the same in Python.
CREATE OR REPLACE FUNCTION holdfast.message_id(topic_id integer, seq bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (lpad(to_hex($1), 8, '0') || '0000800' || to_hex($2 >> 62)
            || to_hex((-9223372036854775808) | ($2 & 4611686018427387903)))::uuid
$$;

-- The state of a job by the clock, where the stored state is the one that a statement last wrote: a lease or a delay
-- may have ended since. One expression, which the planner inlines: a call costs what the expression costs.
CREATE OR REPLACE FUNCTION holdfast.state_now(
    state holdfast.job_state, visible_at timestamptz, expires_at timestamptz, cancelled_at timestamptz
) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN state::text IN ('failed', 'expired') THEN state::text
                WHEN state::text = 'leased' AND visible_at >= now() THEN 'leased'
                WHEN cancelled_at IS NOT NULL THEN 'cancelled'
                WHEN expires_at <= now() THEN 'expired'
                WHEN state::text = 'blocked' THEN 'blocked'
                WHEN visible_at > now() THEN 'scheduled'
                ELSE 'ready' END
$$;
