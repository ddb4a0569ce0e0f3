-- The id of a job in the messages dialect, which contains where the job is. id_of in app/kernel/model.py does the same.
CREATE OR REPLACE FUNCTION holdfast.message_id(topic_id integer, seq bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (lpad(to_hex($1), 8, '0') || '0000800' || to_hex($2 >> 62)
            || to_hex((-9223372036854775808) | ($2 & 4611686018427387903)))::uuid
$$;

-- The state of a job by the clock. The stored state is from the last statement: a lease or a delay may have ended
-- since. One expression, which the planner inlines, so a call costs no more than the expression.
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
