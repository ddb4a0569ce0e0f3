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
